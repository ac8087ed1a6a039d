package identity

import (
	"net/http"
	"strings"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
)

// TryAuthenticate is Authenticate for users that can be authenticated without waiting. It reports whether it did.
func (s *Identity) TryAuthenticate(q *request.Request) bool {
	user, ok := s.lookupUserFast(q.HTTP)
	if !ok {
		return false // the ordinary path finds the reason
	}
	q.User = user
	return true
}

// lookupUserFast is lookupUser without waiting. It returns false if it would have to wait, or if authentication fails.
func (s *Identity) lookupUserFast(r *http.Request) (api.User, bool) {
	for _, a := range s.config.Authenticators {
		prompt, can := a.(api.NonBlockingAuthenticator)
		if !can {
			return api.User{}, false
		}
		user, ok, waits := prompt.TryAuthenticate(r)
		if waits {
			return api.User{}, false
		}
		if ok {
			return withAuthenticatedGroup(user), true
		}
	}
	return api.User{}, false
}

// Impersonates reports whether a request has headers of an impersonation.
func Impersonates(q *request.Request) bool {
	for name := range q.HTTP.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

// TryAuthorize is Authorize for requests that are allowed without waiting. It reports whether the request is allowed.
func (s *Identity) TryAuthorize(q *request.Request) bool {
	if len(s.config.Authorizers) == 0 {
		return true
	}
	for _, a := range s.config.Authorizers {
		prompt, can := a.(api.NonBlockingAuthorizer)
		if !can {
			return false
		}
		decision, reason, waits := prompt.TryAuthorize(q.User, q.Request)
		switch {
		case waits || decision == api.Deny:
			return false
		case decision == api.Allow:
			q.Answer.Audit.SetAuthorization(reason, nil)
			return true
		}
	}
	return false
}
