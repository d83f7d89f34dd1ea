"""People, money and choice. Knows no wire format and no tensor."""
