// Package identity has the stages that find out who sent a request, and whether the user may perform it.
package identity

import (
	"context"
	"log/slog"
	"net/http"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
)

// Config configures an Identity.
type Config struct {
	// Authenticators and Authorizers are tried in order. Without authorizers everything is allowed. Without
	// authenticators every request is anonymous.
	Authenticators []api.Authenticator
	Authorizers    []api.Authorizer
	// Anonymous reports whether a path needs no credentials. isDefault is true for the paths that are open by default.
	// If it is nil and there are authenticators, every path needs credentials.
	Anonymous func(path string, isDefault bool) bool
	// UntilRevoked limits a watch or a stream to the time that the user's credentials are valid; nil sets no limit. The
	// returned function is called at the end of the request.
	UntilRevoked func(ctx context.Context, r *http.Request, user api.User) (context.Context, context.CancelFunc)
	// OnUnauthenticated is called for a request whose credentials are invalid or missing.
	OnUnauthenticated func(q *request.Request)
	// Bootstrapped is closed when the default objects, such as RBAC roles, exist.
	Bootstrapped <-chan struct{}
	Log          *slog.Logger
}

// Identity authenticates and authorizes requests.
type Identity struct{ config Config }

// New returns an Identity.
func New(c Config) *Identity { return &Identity{c} }
