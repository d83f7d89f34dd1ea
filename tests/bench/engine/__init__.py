"""The local engine beside what a user would run instead, turn by turn in one run. Every peer is a process under its own interpreter."""
