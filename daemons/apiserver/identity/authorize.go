package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
)

// Authorize is the stage that checks whether the user may perform the request.
func (s *Identity) Authorize(q *request.Request) error {
	if len(s.config.Authorizers) == 0 || IsAnonymousPath(q.Path) && (q.Verb == "get" || request.IsHealthPath(q.Path)) {
		return nil
	}
	reason, err := s.authorizeWithReason(q.HTTP.Context(), q.User, q.Request)
	if apierrors.IsForbidden(err) && !isClosed(s.config.Bootstrapped) {
		// A new cluster has no roles yet. Its daemons, started together with this server, would take the refusal as
		// final and retry only seconds later.
		wait, cancel := context.WithTimeout(q.HTTP.Context(), bootstrapWait)
		defer cancel()
		select {
		case <-s.config.Bootstrapped:
			reason, err = s.authorizeWithReason(q.HTTP.Context(), q.User, q.Request)
		case <-wait.Done():
		}
	}
	q.Answer.Audit.SetAuthorization(reason, err)
	return err
}

// bootstrapWait is how long a forbidden request waits for the default objects, such as RBAC roles, to be created.
const bootstrapWait = 10 * time.Second

// AuthorizeUser returns nil if an authorizer allows the user to perform the request, and otherwise the error to answer
// with.
func (s *Identity) AuthorizeUser(ctx context.Context, user api.User, r api.Request) error {
	_, err := s.authorizeWithReason(ctx, user, r)
	return err
}

// authorizeWithReason is like AuthorizeUser, and also returns the reason.
func (s *Identity) authorizeWithReason(ctx context.Context, user api.User, r api.Request) (cause string, err error) {
	var reasons []string
	for _, a := range s.config.Authorizers {
		decision, reason, err := a.Authorize(ctx, user, r)
		switch {
		case err != nil:
			reasons = append(reasons, err.Error())
		case decision == api.Allow:
			return reason, nil
		case reason != "":
			reasons = append(reasons, reason)
		}
		if decision == api.Deny {
			break
		}
	}
	cause = strings.Join(reasons, ", ")
	return cause, forbiddenError(user, r, cause)
}

// forbiddenError returns the error for a request that the user may not perform.
func forbiddenError(user api.User, r api.Request, reason string) error {
	var text string
	if !r.Resource {
		text = fmt.Sprintf("User %q cannot %s path %q", user.Name, r.Verb, r.Path)
	} else {
		resource := r.GroupVersionResource.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		text = fmt.Sprintf("User %q cannot %s resource %q in API group %q", user.Name, r.Verb, resource, r.Group)
		if r.Namespace != "" {
			text += fmt.Sprintf(" in the namespace %q", r.Namespace)
		} else {
			text += " at the cluster scope"
		}
	}
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(r.GroupResource(), r.Name, errors.New(text))
}

// isClosed reports whether a channel is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
