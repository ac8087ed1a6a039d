package identity

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/run"
)

// Authenticate is the stage that finds the user of a request.
func (s *Identity) Authenticate(q *request.Request) error {
	user, ok, err := s.lookupUser(q.HTTP)
	if err != nil {
		s.config.Log.Debug("credentials refused", "path", q.Path, "err", err)
		s.config.OnUnauthenticated(q)
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if ok {
		q.User = user
		run.ConnOf(q.HTTP.Context()).Identify()
		if s.config.UntilRevoked != nil && (q.IsLongRunning() || q.CanUpgrade()) {
			ctx, end := s.config.UntilRevoked(q.HTTP.Context(), q.HTTP, user)
			q.Answer.OnEnd(end)
			q.HTTP = q.HTTP.WithContext(ctx)
		}
		return nil
	}
	q.User = api.User{Name: api.Anonymous, Groups: []string{api.GroupUnauthenticated}}
	if len(s.config.Authenticators) == 0 || s.config.Anonymous != nil &&
		s.config.Anonymous(q.Path, IsAnonymousPath(q.Path)) {
		return nil
	}
	s.config.OnUnauthenticated(q)
	return apierrors.NewUnauthorized("Unauthorized")
}

// lookupUser returns the user of a request's credentials. It returns false without credentials.
func (s *Identity) lookupUser(r *http.Request) (api.User, bool, error) {
	for _, a := range s.config.Authenticators {
		user, ok, err := a.Authenticate(r)
		if err != nil {
			return api.User{}, false, err
		}
		if !ok {
			continue
		}
		return withAuthenticatedGroup(user), true, nil
	}
	return api.User{}, false, nil
}

// withAuthenticatedGroup adds the group of all authenticated users.
func withAuthenticatedGroup(user api.User) api.User {
	if !user.InGroup(api.GroupAuthenticated) && user.Name != api.Anonymous {
		user.Groups = append(user.Groups[:len(user.Groups):len(user.Groups)], api.GroupAuthenticated)
	}
	return user
}

// IsAnonymousPath reports whether a path needs no credentials by default.
func IsAnonymousPath(path string) bool {
	return request.IsHealthPath(path) || path == "/version" || path == "/version/"
}
