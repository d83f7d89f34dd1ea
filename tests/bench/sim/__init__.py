"""A discrete-event simulator that judges the router: published latencies, a public trace, the gateway's own routing code."""
