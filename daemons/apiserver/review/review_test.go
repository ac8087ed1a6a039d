package review

import (
	"context"
	"errors"
	runtimestats "runtime"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
)

// testAuthorizer lets ann get pods in shop, and the path /healthz.
type testAuthorizer struct{}

func (testAuthorizer) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	if u.Name == "broken" {
		return api.NoOpinion, "", errors.New("no answer")
	}
	if u.Name == "ann" &&
		(r.Resource && r.GroupVersionResource.Resource == "pods" && r.Namespace == "shop" && r.Verb == "get" ||
			!r.Resource && r.Path == "/healthz") {
		return api.Allow, "because", nil
	}
	return api.NoOpinion, "", nil
}

func (testAuthorizer) Rules(api.User, string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz"}},
	}
}

func (testAuthorizer) Verify(_ context.Context, token string, audiences []string) (api.User, []string, error) {
	if token != "good" {
		return api.User{}, nil, errors.New("invalid bearer token")
	}
	return api.User{
		Name:   "ann",
		Groups: []string{"g"},
		Extra:  map[string][]string{"k": {"v"}},
	}, append([]string{"api"}, audiences...), nil
}

func sendReview(t *testing.T, u api.User, resource string, obj runtime.Object) (runtime.Object, error) {
	t.Helper()
	for gr, handle := range All(testAuthorizer{}, testAuthorizer{}, testAuthorizer{}) {
		if gr.Resource == resource {
			return handle(context.Background(), u, obj)
		}
	}
	t.Fatalf("no handler serves %s", resource)
	return nil, nil
}

func podAttributes(ns string) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: ns}
}

func TestAccessReviewsAskTheAuthorizer(t *testing.T) {
	path := &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/healthz"}
	spec := func(user string, r *authorizationv1.ResourceAttributes,
		n *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: r, NonResourceAttributes: n}
	}
	for name, c := range map[string]struct {
		spec    authorizationv1.SubjectAccessReviewSpec
		allowed bool
		error   string
	}{
		"may":     {spec("ann", podAttributes("shop"), nil), true, ""},
		"path":    {spec("ann", nil, path), true, ""},
		"may not": {spec("ann", podAttributes("other"), nil), false, ""},
		"another": {spec("bob", podAttributes("shop"), nil), false, ""},
		"both": {spec("ann", podAttributes("shop"), path), false, "cannot be specified in combination with " +
			"resourceAttributes"},
		"neither": {spec("ann", nil, nil), false, "exactly one of nonResourceAttributes or resourceAttributes must " +
			"be specified"},
		"nobody": {spec("", podAttributes("shop"), nil), false, "at least one of user or group must be specified"},
	} {
		out, err := sendReview(t, api.User{}, "subjectaccessreviews",
			&authorizationv1.SubjectAccessReview{Spec: c.spec})
		if (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: %v, want %q", name, err, c.error)
		} else if err == nil && out.(*authorizationv1.SubjectAccessReview).Status.Allowed != c.allowed {
			t.Errorf("%s: %+v", name, out)
		}
	}
	out, err := sendReview(
		t,
		api.User{Name: "ann"},
		"selfsubjectaccessreviews",
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: podAttributes("shop")},
		},
	)
	if err != nil || !out.(*authorizationv1.SelfSubjectAccessReview).Status.Allowed {
		t.Errorf("of oneself: %v %v", out, err)
	}
	_, err = sendReview(
		t,
		api.User{},
		"localsubjectaccessreviews",
		&authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop"},
			Spec:       spec("ann", podAttributes("other"), nil),
		},
	)
	if err == nil || !strings.Contains(err.Error(), "must match metadata.namespace") {
		t.Errorf("in another namespace: %v", err)
	}
	out, err = sendReview(t, api.User{}, "subjectaccessreviews",
		&authorizationv1.SubjectAccessReview{Spec: spec("broken", podAttributes("shop"), nil)})
	if err != nil || out.(*authorizationv1.SubjectAccessReview).Status.EvaluationError != "no answer" {
		t.Errorf("when the authorizer fails: %v %v", out, err)
	}
}

func TestRulesAreListed(t *testing.T) {
	out, err := sendReview(t, api.User{Name: "ann"}, "selfsubjectrulesreviews",
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "shop"}})
	if err != nil {
		t.Fatal(err)
	}
	if s := out.(*authorizationv1.SelfSubjectRulesReview).Status; len(s.ResourceRules) != 1 ||
		len(s.NonResourceRules) != 1 ||
		s.Incomplete {
		t.Errorf("%+v", s)
	}
	if _, err := sendReview(t, api.User{}, "selfsubjectrulesreviews",
		&authorizationv1.SelfSubjectRulesReview{}); err == nil {
		t.Error("a review without a namespace is answered")
	}
}

func TestTokenAndSelfSubjectReviews(t *testing.T) {
	review := func(token string) authenticationv1.TokenReviewStatus {
		t.Helper()
		out, err := sendReview(t, api.User{}, "tokenreviews",
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
		if err != nil {
			t.Fatal(err)
		}
		return out.(*authenticationv1.TokenReview).Status
	}
	if s := review("good"); !s.Authenticated || s.User.Username != "ann" || s.User.Extra["k"][0] != "v" ||
		s.Audiences[0] != "api" {
		t.Errorf("%+v", s)
	}
	if s := review("bad"); s.Authenticated || s.Error != "invalid bearer token" {
		t.Errorf("%+v", s)
	}
	out, err := sendReview(t, api.User{Name: "ann", UID: "1"}, "selfsubjectreviews",
		&authenticationv1.SelfSubjectReview{})
	if err != nil || out.(*authenticationv1.SelfSubjectReview).Status.UserInfo.Username != "ann" {
		t.Errorf("%v %v", out, err)
	}
}

// The selectors of reviews are validated, and those that cannot be parsed are reported.
// Proves S12.
func TestInvalidReviewSelectorsAreRejected(t *testing.T) {
	for what, c := range map[string]struct {
		attributes      authorizationv1.ResourceAttributes
		refused, ignore string
	}{
		"requirements": {attributes: authorizationv1.ResourceAttributes{
			FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{
				Key: "a", Operator: "In", Values: []string{"b"}}}}}},
		"an operator of tomorrow": {attributes: authorizationv1.ResourceAttributes{
			LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{
				Key: "a", Operator: "Newer", Values: []string{"b"}}}}}},
		"both": {attributes: authorizationv1.ResourceAttributes{FieldSelector: &authorizationv1.FieldSelectorAttributes{
			RawSelector: "a=b", Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "Exists"}}}},
			refused: "spec.resourceAttributes.fieldSelector.rawSelector: Invalid value"},
		"neither": {attributes: authorizationv1.ResourceAttributes{
			LabelSelector: &authorizationv1.LabelSelectorAttributes{}},
			refused: "when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is " +
				"required"},
		"no values": {attributes: authorizationv1.ResourceAttributes{
			FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{
				Key: "a", Operator: "In"}}}},
			refused: "spec.resourceAttributes.fieldSelector.requirements[0].values: Required value"},
		"what is none": {attributes: authorizationv1.ResourceAttributes{
			LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a b c"}},
			ignore: "spec.resourceAttributes.labelSelector partially ignored due to parse error"},
	} {
		out, err := subjectAccess(testAuthorizer{})(
			t.Context(),
			api.User{},
			&authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: "a", ResourceAttributes: &c.attributes},
			},
		)
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", what, err, c.refused)
		}
		if err == nil && out.(*authorizationv1.SubjectAccessReview).Status.EvaluationError != c.ignore {
			t.Errorf("%s: %+v", what, out.(*authorizationv1.SubjectAccessReview).Status)
		}
	}
}

// The cost of a review is about linear in its size, because any user may send a review of itself.
// Proves S12.
func TestReviewCostIsLinear(t *testing.T) {
	const many = 20_000
	for _, requirement := range []metav1.LabelSelectorRequirement{{},
		{Key: "k", Operator: metav1.LabelSelectorOpExists}} {
		r := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				LabelSelector: &authorizationv1.LabelSelectorAttributes{
					Requirements: slices.Repeat([]metav1.LabelSelectorRequirement{requirement}, many),
				},
			}},
		}
		before := totalAllocated()
		_, err := sendReview(t, api.User{Name: "ann"}, "selfsubjectaccessreviews", r)
		// With the race detector, regular expressions do not reuse their memory, which takes a few hundred megabytes.
		// Quadratic cost would be many times that.
		if spent := totalAllocated() - before; spent > 1<<30 {
			t.Errorf("a review of %d requirements %+v took %d MiB in all", many, requirement, spent>>20)
		}
		if err != nil && len(err.Error()) > 256<<10 {
			t.Errorf("the refusal of %d requirements has %d bytes", many, len(err.Error()))
		}
	}
}

func totalAllocated() uint64 {
	var m runtimestats.MemStats
	runtimestats.ReadMemStats(&m)
	return m.TotalAlloc
}
