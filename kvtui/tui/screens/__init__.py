"""The screens. Each draws what a view module made of the live state and answers keys from the registry."""
