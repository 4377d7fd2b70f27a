// The run view: header, then one element for each part of the turn.

const drawers = {prompt, text, reasoning, call, line, failure};

function prompt() {
  const node = element('div', {name: 'nbagent-prompt'});
  return {node, update: part => { node.textContent = part.text; }};
}

function text() {
  const node = element('div', {name: 'nbagent-answer jp-RenderedHTMLCommon'});
  const shown = [];
  const update = part => {
    part.blocks.forEach((block, position) => {
      if (shown[position]?.html === block) return;
      // The kernel rendered it with raw HTML switched off; nothing in it came from the model as markup.
      const template = element('template');
      template.innerHTML = block;
      const nodes = [...template.content.childNodes];
      const after = shown[position]?.nodes.at(-1)?.nextSibling ?? null;
      for (const old of shown[position]?.nodes ?? []) old.remove();
      for (const fresh of nodes) node.insertBefore(fresh, after);
      shown[position] = {html: block, nodes};
    });
    for (const {nodes} of shown.splice(part.blocks.length)) for (const old of nodes) old.remove();
  };
  return {node, update};
}

function reasoning() {
  const label = element('summary');
  const body = element('div', {name: 'nbagent-reasoning-text'});
  const node = element('details', {name: 'nbagent-reasoning', children: [label, body]});
  const update = part => {
    label.textContent = part.label;
    if (part.text.startsWith(body.textContent)) body.append(part.text.slice(body.textContent.length));
    else body.textContent = part.text;
  };
  return {node, update};
}

function call() {
  const name = element('span', {name: 'nbagent-call-name'});
  const preview = element('span', {name: 'nbagent-call-preview'});
  const state = element('span', {name: 'nbagent-call-state'});
  const label = element('summary', {children: [state, name, preview]});
  const body = element('div', {name: 'nbagent-call-body'});
  const node = element('details', {name: 'nbagent-call', children: [label, body]});
  let pictured = false;
  const update = part => {
    name.textContent = part.name;
    preview.textContent = part.preview;
    state.textContent = `${part.mark} ${part.word}`;
    node.dataset.state = part.state;
    const arguments_ = part.arguments ? labelled('Arguments', part.arguments) : [];
    const result = part.result ? labelled('Result', part.result) : [];
    const pictures = part.pictures.map(picture);
    body.replaceChildren(...arguments_, ...result, ...pictures);
    if (!body.childNodes.length) body.append(element('div', {name: 'nbagent-label', text: 'No arguments, no result yet.'}));
    if (pictures.length && !pictured) node.open = pictured = true;
  };
  return {node, update};
}

function labelled(label, content) {
  return [
    element('div', {name: 'nbagent-label', text: label}),
    element('pre', {text: content, attributes: {tabindex: '0', 'aria-label': label}}),
  ];
}

function picture(address) {
  return address.startsWith('data:')
    ? element('img', {attributes: {src: address, alt: 'picture'}})
    : element('div', {name: 'nbagent-label', text: `[${address}]`});
}

function line() {
  const node = element('div', {name: 'nbagent-line'});
  return {node, update: part => { node.textContent = part.text; }};
}

function failure() {
  const node = element('div', {name: 'nbagent-failure'});
  return {node, update: part => { node.textContent = part.text; }};
}

function seconds(milliseconds) {
  const total = milliseconds / 1000;
  if (total < 60) return `${total.toFixed(1)} s`;
  return `${Math.floor(total / 60)} min ${String(Math.floor(total % 60)).padStart(2, '0')} s`;
}

function render({model, el}) {
  const {agent, canStop, notes} = model.get('initial');
  const spinner = element('span', {name: 'nbagent-spinner', attributes: {'aria-hidden': 'true'}});
  const route = element('span', {name: 'nbagent-quiet'});
  const status = element('span', {name: 'nbagent-status', text: 'Starting', attributes: {role: 'status', 'aria-live': 'polite'}});
  const elapsed = element('span', {name: 'nbagent-quiet nbagent-elapsed', attributes: {'aria-hidden': 'true'}});
  const usage = element('span', {name: 'nbagent-quiet'});
  const stop = element('button', {name: 'nbagent-stop', text: 'Stop', attributes: {type: 'button', title: 'Stop this turn and keep what is shown'}});
  const facts = element('span', {name: 'nbagent-facts', children: [spinner, status, elapsed, usage, ...(canStop ? [stop] : [])]});
  const header = element('div', {name: 'nbagent-head', children: [element('span', {name: 'nbagent-agent', text: agent}), route, facts]});
  const body = element('div', {name: 'nbagent-body'});
  const lines = notes.map(note => element('div', {name: 'nbagent-note', text: note}));
  const root = element('section', {name: 'nbagent', attributes: {'aria-label': `Turn of ${agent}`}, children: [header, ...lines, body]});
  el.append(root);

  let drawn = [];
  let drawnHead = null;
  let began = null;
  let running = true;
  let stopping = false;

  const clock = setInterval(() => {
    if (running && began !== null) elapsed.textContent = seconds(performance.now() - began);
  }, 100);

  const draw = (head, parts, changed) => {
    running = head.status !== 'finished';
    if (head !== drawnHead) {
      drawnHead = head;
      began = head.elapsed === null ? null : performance.now() - head.elapsed;
      if (began !== null && !running) elapsed.textContent = seconds(head.elapsed);
    }
    root.dataset.status = head.status;
    root.dataset.tone = head.tone;
    root.setAttribute('aria-busy', String(running));
    route.textContent = head.model;
    usage.textContent = head.usage;
    if (!(stopping && head.status === 'running') && status.textContent !== head.line) status.textContent = head.line;
    stop.hidden = !running;
    if (head.status === 'stopping') stop.disabled = true;
    for (const {node} of drawn.splice(parts.length)) node.remove();
    parts.forEach((part, position) => {
      const old = drawn[position];
      if (old && old.kind !== part.kind) {
        const fresh = {kind: part.kind, ...drawers[part.kind]()};
        old.node.replaceWith(fresh.node);
        drawn[position] = fresh;
      } else if (!old) {
        drawn[position] = {kind: part.kind, ...drawers[part.kind]()};
        body.append(drawn[position].node);
      } else if (changed && !changed.has(position)) {
        return;
      }
      drawn[position].update(part);
    });
  };

  stop.onclick = () => {
    model.send({op: 'stop'});
    stopping = true;
    stop.disabled = true;
    status.textContent = 'Stopping';
  };

  const lost = () => {
    if (!running) return;
    running = false;
    root.dataset.status = 'finished';
    root.dataset.tone = 'warning';
    root.setAttribute('aria-busy', 'false');
    stop.hidden = true;
    status.textContent = 'The kernel went away; %agent show draws the turn from the log';
  };

  const leave = follow(model, draw, lost);
  return () => {
    clearInterval(clock);
    leave();
  };
}

export default {render};
