package identity

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
)

// Impersonate replaces the request's user with the user in the Impersonate headers, if the request's user may do that
// (kubectl --as).
func (s *Identity) Impersonate(q *request.Request) error {
	h := q.HTTP.Header
	wanted, err := impersonatedUser(h)
	if err != nil || wanted.Name == "" {
		return err
	}
	as, constraint, err := s.resolveImpersonation(q, wanted)
	if err != nil {
		return err
	}
	s.config.Log.Info("impersonation", "user", q.User.Name, "as", as.Name, "path", q.Path)
	q.User = as
	q.Answer.Audit.SetImpersonation(q.User, constraint)
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
	return nil
}

// impersonatedUser returns the user that the Impersonate headers name. Its name is empty if they name none.
func impersonatedUser(h http.Header) (api.User, error) {
	as := api.User{
		Name: h.Get(authenticationv1.ImpersonateUserHeader), UID: h.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: h.Values(authenticationv1.ImpersonateGroupHeader),
	}
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix); ok {
			if as.Extra == nil {
				as.Extra = map[string][]string{}
			}
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			as.Extra[strings.ToLower(key)] = values
		}
	}
	if as.Name == "" && (as.UID != "" || len(as.Groups) > 0 || len(as.Extra) > 0) {
		return as, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name",
			&user.DefaultInfo{UID: as.UID, Groups: as.Groups, Extra: as.Extra}))
	}
	return as, nil
}

// withAuthenticationGroup adds the group system:authenticated, or for the anonymous user system:unauthenticated.
func withAuthenticationGroup(as api.User) api.User {
	group := api.GroupAuthenticated
	switch {
	case as.Name == api.Anonymous:
		group = api.GroupUnauthenticated
	case as.InGroup(api.GroupUnauthenticated):
		return as
	}
	if !as.InGroup(group) {
		as.Groups = append(slices.Clip(as.Groups), group)
	}
	return as
}
