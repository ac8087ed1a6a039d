// Package kinds lists every kind of object that the API server serves. Each kind is declared in a file of the package
// of its topic, such as kinds/core or kinds/workload. A kind's routes, storage key, discovery entry, OpenAPI schema and
// kubectl columns are derived from its declaration. The packages below have no access to stored objects.
//
// They import each other only in this order: value, warn, validate, volume, podspec, cell, kind, topics, kinds.
package kinds

import "clusterctl/daemons/kinds/kind"

// The types of a declaration, which package kind defines.
type (
	// Kind is the declaration of one kind.
	Kind = kind.Kind
	// Alias is another group version of a kind.
	Alias = kind.Alias
	// Status defines the behaviour of a kind's status subresource.
	Status = kind.Status
	// Scale reads and sets replicas for the scale subresource.
	Scale = kind.Scale
	// FieldPath is the place of a selectable field in an object's JSON.
	FieldPath = kind.FieldPath
	// Untyped describes a kind that an object in the cluster declares.
	Untyped = kind.Untyped
	// Family is the set of versions of such a kind.
	Family = kind.Family
	// Dependents selects what happens to the dependents of a deleted object.
	Dependents = kind.Dependents
)

// Values of Dependents.
const (
	DeleteDependents = kind.DeleteDependents
	OrphanDependents = kind.OrphanDependents
	NoDependents     = kind.NoDependents
)
