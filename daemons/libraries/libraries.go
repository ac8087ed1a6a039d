// Package libraries states which code the program uses where the project has its own in place of a library. The build
// tag libraries selects the libraries: for HTTP/2, calls to etcd, the JSON of objects, and the merge of large
// objects. docs/decisions/hand-written.md lists the parts.
package libraries
