"""Who answers: one interface, `Backend`, over local models and (later) endpoints."""
