"""The examination that `muniment doctor` makes: a module for each place where it looks. It changes no record."""
