// Package credentials tests the rights of all credentials that provisioning writes to machines, against an API server
// in the test process. docs/credentials.md is the list of these rights. A worker's credential must not read or change
// objects that do not belong to that worker.
package credentials
