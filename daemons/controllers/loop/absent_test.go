package loop

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOnlyTheServersAnswerMeansThatAnObjectIsAbsent(t *testing.T) {
	claims := schema.GroupResource{Resource: "persistentvolumeclaims"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"found":           {nil, false},
		"this one":        {apierrors.NewNotFound(claims, "c"), true},
		"another one":     {apierrors.NewNotFound(claims, "d"), false},
		"of another kind": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "c"), false},
		"a page somewhere": {apierrors.NewGenericServerResponse(404, "get", claims, "", "404 page not found", 0,
			true), false},
		"a page, asked for it": {apierrors.NewGenericServerResponse(404, "get", claims, "c", "404 page not found", 0,
			true), false},
		"nobody to ask":         {errors.New("connection refused"), false},
		"a server that may not": {apierrors.NewForbidden(claims, "c", errors.New("no")), false},
	} {
		if got := IsAbsent(c.err, "persistentvolumeclaims", "c"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
