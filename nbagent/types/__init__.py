"""Values: frozen, validated, JSON in and out, no behaviour beyond themselves."""
