// Package credentials lists the credentials that provisioning puts on each kind of machine, and asks an API server what each of
// them may do: docs/credentials.md is the list. A credential of a worker must not read or change what does not concern that
// worker.
package credentials
