"""What kvtui knows: the five steps (`steps`), the advisor (`rules`), requested against actual, what runs show."""
