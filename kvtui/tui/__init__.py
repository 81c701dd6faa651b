"""What the operator sees. View modules turn state into plain rows; widgets only draw them."""
