package tree

import (
	"context"
	"testing"
)

func TestMembersGrowAndObjectsElsewhereAreAskedOnce(t *testing.T) {
	root := &Node{Kind: "Deployment", Namespace: "shop", Name: "web"}
	reads := 0
	m, err := NewMembers(t.Context(), func(context.Context) (*Report, error) {
		reads++
		return &Report{Root: root}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m.interval = 0
	check := func(kind, namespace, name string, want bool, wantReads int) {
		t.Helper()
		has, err := m.Has(t.Context(), kind, namespace, name)
		if err != nil || has != want || reads != wantReads {
			t.Errorf("%s %s/%s: %v after %d reads, %v", kind, namespace, name, has, reads, err)
		}
	}
	check("Deployment", "shop", "web", true, 1)
	check("Pod", "shop", "other", false, 2)
	check("Pod", "shop", "other", false, 2)
	root = &Node{Kind: "Deployment", Namespace: "shop", Name: "web",
		Owns: []*Node{{Kind: "Pod", Namespace: "shop", Name: "web-1"}}}
	check("Pod", "shop", "web-1", true, 3)
	check("Pod", "elsewhere", "web-1", false, 4)
	root = &Node{Kind: "Deployment", Namespace: "shop", Name: "web"}
	check("Pod", "shop", "third", false, 5)
	check("Pod", "shop", "web-1", true, 5) // a pod that was deleted
}

func TestAnEndedContextEndsTheWaitForTheNextRead(t *testing.T) {
	m, err := NewMembers(t.Context(), func(context.Context) (*Report, error) { return &Report{Root: &Node{}}, nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Has(ctx, "Pod", "shop", "web"); err != context.Canceled {
		t.Error(err)
	}
}
