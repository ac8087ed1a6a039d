// Package api is the vocabulary that the daemons share: who asks, what is asked,
// and how stored objects are looked at. It does nothing.
package api

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of users and groups with a meaning of their own.
const (
	Anonymous            = "system:anonymous"
	Server               = "system:apiserver" // the API server itself
	GroupAuthenticated   = "system:authenticated"
	GroupUnauthenticated = "system:unauthenticated"
	GroupMasters         = "system:masters"
	GroupNodes           = "system:nodes"
	NodeUserPrefix       = "system:node:"
)

// User is who asks.
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

// Request is what is asked, as the method and path say.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection
	// for resources, the method in lower case for other paths.
	Verb string
	Path string

	Resource bool // whether the fields below mean anything
	schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string

	FieldSelector string // as sent
	LabelSelector string // as sent
}

// Authenticator tells who sent a request. It returns false when the request has no
// credentials that it knows, an error when it has some that are not good.
type Authenticator interface {
	Authenticate(r *http.Request) (User, bool, error)
}

// PromptAuthenticator is an Authenticator that often knows without waiting for anybody. It changes nothing of the
// request, which may come to Authenticate afterwards.
type PromptAuthenticator interface {
	Authenticator
	// AuthenticatePromptly is Authenticate; waits says that it would have to wait, that the request would be changed,
	// or that the credentials are not good.
	AuthenticatePromptly(r *http.Request) (u User, ok, waits bool)
}

// Decision is an authorizer's answer.
type Decision int

// An authorizer without opinion leaves the decision to the next.
const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Authorizer decides whether a user may do what is asked; reason is for people.
type Authorizer interface {
	Authorize(ctx context.Context, u User, r Request) (d Decision, reason string, err error)
}

// PromptAuthorizer is an Authorizer that often decides without waiting for anybody.
type PromptAuthorizer interface {
	Authorizer
	// AuthorizePromptly is Authorize; waits says that it would have to wait, or fails.
	AuthorizePromptly(u User, r Request) (d Decision, reason string, waits bool)
}

// Objects is a read view of what is stored, from the API server's own watch cache.
// What it returns is shared and must not be changed.
type Objects interface {
	Get(resource schema.GroupResource, namespace, name string) (runtime.Object, bool)
	// List returns the objects of a namespace, of all when it is empty.
	List(resource schema.GroupResource, namespace string) []runtime.Object
	// Revision changes whenever an object of the resource does: what was computed
	// from objects is good while it stays.
	Revision(resource schema.GroupResource) int64
}
