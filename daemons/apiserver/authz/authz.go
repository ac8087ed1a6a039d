// Package authz decides whether a user may perform a request. It has authorizers for RBAC roles and bindings, for nodes
// and the pods on them, for the group system:masters, and for webhooks in an authorization configuration. It also has
// the roles that every cluster begins with. Package authn has authenticated the user.
package authz

import (
	"context"
	"fmt"
	"strings"

	"clusterctl/daemons/api"
)

// New returns the authorizers of the given modes, in order. Before them it puts one that allows the group
// system:masters everything. Nil modes mean Node and RBAC.
func New(modes []string, objects api.Objects) (api.Authorizer, error) {
	if len(modes) == 0 {
		modes = []string{"Node", "RBAC"}
	}
	chain := Chain{mastersGroup{}}
	for _, name := range modes {
		own, err := newMode(name, objects)
		if err != nil {
			return nil, err
		}
		chain = append(chain, own)
	}
	return chain, nil
}

func newMode(name string, objects api.Objects) (api.Authorizer, error) {
	switch name {
	case "Node":
		return NewNode(objects), nil
	case "RBAC":
		return NewRBAC(objects), nil
	case "AlwaysAllow":
		return fixedDecision(api.Allow), nil
	case "AlwaysDeny":
		return fixedDecision(api.Deny), nil
	}
	return nil, fmt.Errorf("authorization mode %q is not one of Node, RBAC, AlwaysAllow, AlwaysDeny; webhooks are "+
		"named by --authorization-config", name)
}

// Chain calls authorizers in order until one has an opinion.
type Chain []api.Authorizer

// Authorize returns the first opinion. If there is none, it returns the reasons of all authorizers.
func (c Chain) Authorize(ctx context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	var reasons []string
	var failed error
	for _, a := range c {
		d, reason, err := a.Authorize(ctx, u, r)
		if err != nil {
			failed = err
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
		if d != api.NoOpinion {
			return d, reason, err
		}
	}
	return api.NoOpinion, strings.Join(reasons, "\n"), failed
}

// TryAuthorize returns the first opinion, unless an authorizer would have to wait.
func (c Chain) TryAuthorize(u api.User, r api.Request) (api.Decision, string, bool) {
	for _, a := range c {
		nonBlocking, isNonBlocking := a.(api.NonBlockingAuthorizer)
		if !isNonBlocking {
			return api.NoOpinion, "", true
		}
		if d, reason, waits := nonBlocking.TryAuthorize(u, r); waits || d != api.NoOpinion {
			return d, reason, waits
		}
	}
	return api.NoOpinion, "", false
}

// mastersGroup allows the group system:masters everything, whatever the roles say, so that a lockout can be repaired.
type mastersGroup struct{}

func (m mastersGroup) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	d, reason, _ := m.TryAuthorize(u, r)
	return d, reason, nil
}

func (mastersGroup) TryAuthorize(u api.User, _ api.Request) (api.Decision, string, bool) {
	if u.InGroup(api.GroupMasters) {
		return api.Allow, "", false
	}
	return api.NoOpinion, "", false
}

type fixedDecision api.Decision

func (a fixedDecision) Authorize(context.Context, api.User, api.Request) (api.Decision, string, error) {
	return api.Decision(a), "", nil
}

func (a fixedDecision) TryAuthorize(api.User, api.Request) (api.Decision, string, bool) {
	return api.Decision(a), "", false
}
