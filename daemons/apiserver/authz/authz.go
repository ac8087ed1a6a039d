// Package authz decides whether a user may do what a request asks: by roles and bindings (RBAC), for kubelets by what
// their own pods refer to, for the group system:masters by membership alone, and by webhooks where a configuration
// names some. It holds the roles that every cluster begins with, too. Who the user is, package authn has found out.
package authz

import (
	"context"
	"fmt"
	"strings"

	"clusterctl/daemons/api"
)

// New returns the authorizers that modes name, in order, after the one that lets
// system:masters do everything. Nil modes mean Node and RBAC.
func New(modes []string, objects api.Objects) (api.Authorizer, error) {
	if len(modes) == 0 {
		modes = []string{"Node", "RBAC"}
	}
	chain := Chain{masters{}}
	for _, name := range modes {
		own, err := mode(name, objects)
		if err != nil {
			return nil, err
		}
		chain = append(chain, own)
	}
	return chain, nil
}

func mode(name string, objects api.Objects) (api.Authorizer, error) {
	switch name {
	case "Node":
		return NewNode(objects), nil
	case "RBAC":
		return NewRBAC(objects), nil
	case "AlwaysAllow":
		return always(api.Allow), nil
	case "AlwaysDeny":
		return always(api.Deny), nil
	}
	return nil, fmt.Errorf(
		"authorization mode %q is not one of Node, RBAC, AlwaysAllow, AlwaysDeny; webhooks are named by "+
			"--authorization-config",
		name,
	)
}

// Chain asks each authorizer in turn until one has an opinion.
type Chain []api.Authorizer

// Authorize returns the first opinion, or none with all that was said.
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

// AuthorizePromptly is the first opinion, as long as nobody has to wait for one.
func (c Chain) AuthorizePromptly(u api.User, r api.Request) (api.Decision, string, bool) {
	for _, a := range c {
		prompt, can := a.(api.PromptAuthorizer)
		if !can {
			return api.NoOpinion, "", true
		}
		if d, reason, waits := prompt.AuthorizePromptly(u, r); waits || d != api.NoOpinion {
			return d, reason, waits
		}
	}
	return api.NoOpinion, "", false
}

// masters may do everything, whatever roles say: the way back in.
type masters struct{}

func (m masters) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	d, reason, _ := m.AuthorizePromptly(u, r)
	return d, reason, nil
}

func (masters) AuthorizePromptly(u api.User, _ api.Request) (api.Decision, string, bool) {
	if u.InGroup(api.GroupMasters) {
		return api.Allow, "", false
	}
	return api.NoOpinion, "", false
}

type always api.Decision

func (a always) Authorize(context.Context, api.User, api.Request) (api.Decision, string, error) {
	return api.Decision(a), "", nil
}

func (a always) AuthorizePromptly(api.User, api.Request) (api.Decision, string, bool) {
	return api.Decision(a), "", false
}
