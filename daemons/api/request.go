// Package api is the vocabulary that the daemons share: users, requests, and read access to stored objects. It contains
// no logic of its own.
package api

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of users and groups with a special meaning.
const (
	Anonymous            = "system:anonymous"
	Server               = "system:apiserver" // the API server itself
	GroupAuthenticated   = "system:authenticated"
	GroupUnauthenticated = "system:unauthenticated"
	GroupMasters         = "system:masters"
	GroupNodes           = "system:nodes"
	NodeUserPrefix       = "system:node:"
)

// User is the authenticated sender of a request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// InGroup reports whether the user is a member of group.
func (u User) InGroup(group string) bool {
	for _, g := range u.Groups {
		if g == group {
			return true
		}
	}
	return false
}

// Request describes a request by its method and path.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection for resources. For other paths it is
	// the lower-case method.
	Verb string
	Path string

	Resource bool // whether the fields below are set
	schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string

	FieldSelector string // as sent
	LabelSelector string // as sent
}

// Authenticator identifies the user of a request. It returns false if the request has no credentials of its kind, and
// an error if they are invalid.
type Authenticator interface {
	Authenticate(r *http.Request) (User, bool, error)
}

// NonBlockingAuthenticator is an Authenticator that can often answer without blocking. It does not change the request,
// which may be passed to Authenticate afterwards.
type NonBlockingAuthenticator interface {
	Authenticator
	// TryAuthenticate is like Authenticate. waits reports that it would have to block or to change the request, or
	// that the credentials are invalid.
	TryAuthenticate(r *http.Request) (u User, ok, waits bool)
}

// Decision is an authorizer's answer.
type Decision int

// Decisions. After NoOpinion, the next authorizer decides.
const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Authorizer decides whether a user may make a request. reason is for humans.
type Authorizer interface {
	Authorize(ctx context.Context, u User, r Request) (d Decision, reason string, err error)
}

// NonBlockingAuthorizer is an Authorizer that can often decide without blocking.
type NonBlockingAuthorizer interface {
	Authorizer
	// TryAuthorize is like Authorize. waits reports that it would have to block, or fails.
	TryAuthorize(u User, r Request) (d Decision, reason string, waits bool)
}

// Objects provides read access to stored objects from the API server's watch cache. Returned objects are shared and
// must not be changed.
type Objects interface {
	Get(resource schema.GroupResource, namespace, name string) (runtime.Object, bool)
	// List returns the objects of a namespace. An empty namespace means all.
	List(resource schema.GroupResource, namespace string) []runtime.Object
	// Revision returns a number that changes whenever an object of the resource does. Results that were computed from
	// objects are valid while it stays the same.
	Revision(resource schema.GroupResource) int64
}

// CurrentObjects are Objects whose absence can be established.
type CurrentObjects interface {
	Objects
	// GetCurrent is like Get, but finds every object that was stored when it was called. It returns an error if it
	// cannot establish that an object is missing.
	GetCurrent(ctx context.Context, resource schema.GroupResource, namespace, name string) (
		obj runtime.Object, ok bool, err error)
}
