package identity

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
)

// impersonationMode is a mode of impersonation. All modes but the last are constrained: they need the right to
// impersonate the user in this mode, and the right to perform the request while impersonating.
type impersonationMode struct {
	mode    string
	applies func(wanted, by api.User) bool
}

// impersonationModes are tried in this order. The first mode that is allowed applies. If none is, the error of the
// first one is returned.
var impersonationModes = []impersonationMode{
	{associatedNode, func(wanted, by api.User) bool {
		node, ok := nodeName(wanted.Name)
		_, _, err := serviceaccount.SplitUsername(by.Name)
		return ok && err == nil && hasOnlyName(wanted) &&
			slices.Equal(by.Extra[serviceaccount.NodeNameKey], []string{node})
	}},
	{"arbitrary-node", func(wanted, _ api.User) bool {
		_, ok := nodeName(wanted.Name)
		return ok && hasOnlyName(wanted)
	}},
	{"serviceaccount", func(wanted, _ api.User) bool {
		_, _, err := serviceaccount.SplitUsername(wanted.Name)
		return err == nil && hasOnlyName(wanted)
	}},
	{"user-info", func(wanted, _ api.User) bool {
		_, node := nodeName(wanted.Name)
		_, _, err := serviceaccount.SplitUsername(wanted.Name)
		return !node && err != nil
	}},
	{"", func(api.User, api.User) bool { return true }},
}

// associatedNode is the mode in which a service account impersonates the node that its pod runs on.
const associatedNode = "associated-node"

// resolveImpersonation returns the user to impersonate, and the constraint of the impersonation; empty if there is
// none.
func (s *Identity) resolveImpersonation(q *request.Request, wanted api.User) (as api.User, constraint string,
	err error) {
	for _, i := range impersonationModes {
		if !i.applies(wanted, q.User) {
			continue
		}
		var failed error
		if as, failed = s.authorizeMode(q, i.mode, wanted); failed != nil {
			if err == nil {
				err = failed
			}
			continue
		}
		if i.mode != "" {
			constraint = "impersonate:" + i.mode
		}
		return as, constraint, nil
	}
	return api.User{}, "", err
}

func (s *Identity) authorizeMode(q *request.Request, mode string, wanted api.User) (api.User, error) {
	ctx, by := q.HTTP.Context(), q.User
	if mode == associatedNode {
		// The rights do not depend on the node that the account's pod runs on.
		by.Extra = map[string][]string{
			"authentication.kubernetes.io/associated-node-keys": slices.Sorted(maps.Keys(by.Extra)),
		}
	}
	if mode != "" {
		on := q.Request
		on.Verb = "impersonate-on:" + mode + ":" + on.Verb
		if err := s.AuthorizeUser(ctx, by, on); err != nil {
			return api.User{}, err
		}
	}
	as, right := impliedUserAndRight(mode, wanted)
	more, err := s.impersonationRights(q, by, mode, wanted)
	if err != nil {
		return api.User{}, err
	}
	for _, r := range append([]api.Request{right}, more...) {
		if err := s.AuthorizeUser(ctx, by, r); err != nil {
			return api.User{}, err
		}
	}
	return withAuthenticationGroup(as), nil
}

// impliedUserAndRight returns the user with the groups that follow from its name, and the right that is needed to
// impersonate that name.
func impliedUserAndRight(mode string, as api.User) (api.User, api.Request) {
	right := impersonationRight(mode, "users", "", as.Name)
	if node, ok := nodeName(as.Name); ok && mode != "" {
		right.GroupVersionResource.Resource, right.Name = "nodes", node
		if mode == associatedNode {
			right.Name = "*"
		}
		as.Groups = []string{api.GroupNodes}
	} else if namespace, name, err := serviceaccount.SplitUsername(as.Name); err == nil {
		right.GroupVersionResource.Resource, right.Namespace, right.Name = "serviceaccounts", namespace, name
		if len(as.Groups) == 0 {
			as.Groups = serviceaccount.MakeGroupNames(namespace)
		}
	}
	return as, right
}

func impersonationRight(mode, resource, subresource, name string) api.Request {
	r := api.Request{
		Verb: "impersonate", Resource: true, Name: name, Subresource: subresource,
		GroupVersionResource: schema.GroupVersionResource{
			Group:    authenticationv1.GroupName,
			Version:  "v1",
			Resource: resource,
		},
	}
	switch {
	case mode != "":
		r.Verb += ":" + mode
	case resource == "users" || resource == "groups":
		r.Group = "" // the unconstrained rights have always used the empty group
	}
	return r
}

// impersonationRights returns the rights that are needed for a UID, groups and extra values. Each of them needs a right
// of its own.
func (s *Identity) impersonationRights(q *request.Request, by api.User, mode string,
	wanted api.User) ([]api.Request, error) {
	groups, extra := impersonationRight(mode, "groups", "", "*"), impersonationRight(mode, "userextras", "*", "*")
	if mode != "" {
		if err := checkConstrained(wanted, by, groups, extra); err != nil {
			return nil, err
		}
	}
	var rights []api.Request
	if wanted.UID != "" {
		rights = append(rights, impersonationRight(mode, "uids", "", wanted.UID))
	}
	if !s.isEveryValueAllowed(q, by, mode, groups, len(wanted.Groups)) {
		for _, g := range wanted.Groups {
			rights = append(rights, impersonationRight(mode, "groups", "", g))
		}
	}
	n := 0
	for _, values := range wanted.Extra {
		n += len(values)
	}
	if !s.isEveryValueAllowed(q, by, mode, extra, max(n, len(wanted.Extra))) {
		for _, key := range slices.Sorted(maps.Keys(wanted.Extra)) {
			for _, v := range wanted.Extra[key] {
				rights = append(rights, impersonationRight(mode, "userextras", key, v))
			}
		}
	}
	return rights, nil
}

// bulkCheckThreshold is the number of groups or extra values from which the right to all of them is checked first.
const bulkCheckThreshold = 4

func (s *Identity) isEveryValueAllowed(q *request.Request, by api.User, mode string, all api.Request, n int) bool {
	return mode != "" && n >= bulkCheckThreshold && s.AuthorizeUser(q.HTTP.Context(), by, all) == nil
}

// checkConstrained refuses groups and extra values that no constrained impersonation may use.
func checkConstrained(wanted, by api.User, groups, extra api.Request) error {
	groups.Name, extra.Name, extra.Subresource = "", "", ""
	if slices.Contains(wanted.Groups, "") {
		return forbiddenError(by, groups, "impersonating the empty string group is not allowed")
	}
	if wanted.InGroup(api.GroupMasters) {
		groups.Name = api.GroupMasters
		return forbiddenError(by, groups, "impersonating the system:masters group is not allowed")
	}
	for key, values := range wanted.Extra {
		var err error
		bad := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate()
		switch {
		case key == "":
			err = errors.New("impersonating the empty string key in extra is not allowed")
		case bad != nil:
			err = fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", bad)
		case len(values) == 0:
			err = errors.New("impersonating empty values in extra is not allowed")
		case slices.Contains(values, ""):
			err = errors.New("impersonating the empty string value in extra is not allowed")
		}
		if err != nil {
			return forbiddenError(by, extra, err.Error())
		}
	}
	return nil
}

func hasOnlyName(u api.User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }

// nodeName returns the node that a user name belongs to.
func nodeName(user string) (string, bool) {
	name, ok := strings.CutPrefix(user, api.NodeUserPrefix)
	return name, ok && len(validation.NameIsDNSSubdomain(name, false)) == 0
}
