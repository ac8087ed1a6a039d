package apiserver

import (
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

const (
	accountPrefix = "system:serviceaccount:"
	accountGroup  = "system:serviceaccounts"
)

// impersonate lets a user who may ask as somebody else (kubectl --as). Each name,
// group, uid and extra value is a right of its own.
func (s *Server) impersonate(q *request) error {
	h := q.http.Header
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
	if as.Name == "" {
		if as.UID != "" || len(as.Groups) > 0 || len(as.Extra) > 0 {
			return apierrors.NewBadRequest("requested without impersonating a user name")
		}
		return nil
	}
	for _, r := range rightsToBe(as) {
		if err := s.allowed(q.http.Context(), q.user, r); err != nil {
			return err
		}
	}
	s.log.Info("impersonation", "user", q.user.Name, "as", as.Name, "path", q.Path)
	q.user = withGroups(as)
	q.trail.impersonates(q.user)
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
	return nil
}

// rightsToBe are what one must be allowed to be somebody.
func rightsToBe(as api.User) []api.Request {
	right := func(group, resource, sub, namespace, name string) api.Request {
		return api.Request{
			Verb: "impersonate", Resource: true, Namespace: namespace, Name: name, Subresource: sub,
			GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		}
	}
	var rights []api.Request
	if account, ok := strings.CutPrefix(as.Name, accountPrefix); ok && strings.Count(account, ":") == 1 {
		namespace, name, _ := strings.Cut(account, ":")
		rights = append(rights, right("", "serviceaccounts", "", namespace, name))
	} else {
		rights = append(rights, right("", "users", "", "", as.Name))
	}
	for _, g := range as.Groups {
		rights = append(rights, right("", "groups", "", "", g))
	}
	if as.UID != "" {
		rights = append(rights, right(authenticationv1.GroupName, "uids", "", "", as.UID))
	}
	for key, values := range as.Extra {
		for _, v := range values {
			rights = append(rights, right(authenticationv1.GroupName, "userextras", key, "", v))
		}
	}
	return rights
}

// withGroups adds the groups that come with a name.
func withGroups(as api.User) api.User {
	if account, ok := strings.CutPrefix(as.Name, accountPrefix); ok && len(as.Groups) == 0 {
		namespace, _, _ := strings.Cut(account, ":")
		as.Groups = []string{accountGroup, accountGroup + ":" + namespace}
	}
	if as.Name == api.Anonymous {
		if len(as.Groups) == 0 {
			as.Groups = []string{api.GroupUnauthenticated}
		}
	} else if !as.InGroup(api.GroupAuthenticated) {
		as.Groups = append(as.Groups, api.GroupAuthenticated)
	}
	return as
}
