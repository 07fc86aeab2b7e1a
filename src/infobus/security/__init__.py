"""Who somebody is, and what they may do: certificates, credentials, policies and rights.

All of it is pure. Keys and times come in as arguments; what signs or verifies needs the extra
`secure`, and its modules are loaded late.
"""
