// Shared by every view: building elements, and following numbered deltas.

/** An element with a class, text (never markup), attributes and children. */
function element(tag, {name, text, attributes = {}, children = []} = {}) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** One name for each load of the page, so that the kernel knows a reload from a second view. */
function pageName() {
  window.nbagentPage ??= Math.random().toString(36).slice(2);
  return window.nbagentPage;
}

/**
 * Follows a view's messages; calls `draw(head, parts, changed)`, `changed` being positions, or null for all, and `lost()`
 * when the kernel that sends them is gone.
 */
function follow(model, draw, lost) {
  let seq = 0;
  let head = {};
  let parts = [];
  let asked = false;
  const hello = () => {
    if (!asked) model.send({op: 'hello', page: pageName()});
    asked = true;
  };
  const receive = message => {
    if (message.op === 'snapshot') {
      if (message.seq < seq) return;
      ({seq, head, parts} = message);
      asked = false;
      draw(head, parts, null);
    } else if (message.op === 'delta' && message.seq > seq) {
      if (message.seq !== seq + 1) return hello();
      seq = message.seq;
      const changed = new Set();
      for (const op of message.ops) apply(parts, op, changed);
      head = message.head ?? head;
      draw(head, parts, changed);
    }
  };
  model.on('msg:custom', receive);
  model.on('comm_live_update', lost);
  hello();
  return () => {
    model.off('msg:custom', receive);
    model.off('comm_live_update', lost);
  };
}

function apply(parts, [op, position, ...rest], changed) {
  if (op === 'cut') {
    parts.length = position;
    return;
  }
  changed.add(position);
  if (op === 'put') parts[position] = rest[0];
  else if (op === 'set') Object.assign(parts[position], rest[0]);
  else if (op === 'add') parts[position][rest[0]] += rest[1];
  else if (op === 'list') parts[position][rest[0]].splice(rest[1], Infinity, ...rest[2]);
}

