"""Tags: subjects with a declared type, a creator and rights, in one table that members agree on."""
