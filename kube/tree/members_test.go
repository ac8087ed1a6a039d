package tree

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
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
	check := func(wantReads int, want map[Object]bool) {
		t.Helper()
		objects := slices.Collect(maps.Keys(want))
		has, err := m.Has(t.Context(), objects)
		if err != nil || reads != wantReads {
			t.Errorf("%d reads, %v", reads, err)
		}
		for i, o := range objects {
			if has[i] != want[o] {
				t.Errorf("%v: %t", o, has[i])
			}
		}
	}
	pod := func(name string) Object { return Object{"Pod", "shop", name} }
	deployment := Object{"Deployment", "shop", "web"}
	check(1, map[Object]bool{deployment: true})
	// One read serves any number of objects elsewhere.
	check(2, map[Object]bool{deployment: true, pod("a"): false, pod("b"): false, pod("c"): false})
	check(2, map[Object]bool{pod("a"): false, pod("c"): false})
	root = &Node{Kind: "Deployment", Namespace: "shop", Name: "web",
		Owns: []*Node{{Kind: "Pod", Namespace: "shop", Name: "web-1"}}}
	check(3, map[Object]bool{pod("web-1"): true})
	check(4, map[Object]bool{{"Pod", "elsewhere", "web-1"}: false})
	root = &Node{Kind: "Deployment", Namespace: "shop", Name: "web"}
	check(5, map[Object]bool{pod("third"): false})
	check(5, map[Object]bool{pod("web-1"): true}) // a pod that was deleted
}

// The first list of events must not wait, although the tree has just been read.
func TestOnlyFurtherReadsOfATreeWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m, err := NewMembers(t.Context(), func(context.Context) (*Report, error) { return &Report{Root: &Node{}}, nil })
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []time.Duration{0, refreshInterval, 2 * refreshInterval} {
			if _, err := m.Has(t.Context(), []Object{{"Pod", "shop", string(rune('a' + i))}}); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(start); waited != want {
				t.Errorf("read %d after %s, expected %s", i, waited, want)
			}
		}
	})
}

func TestAnEndedContextEndsTheWaitForTheNextRead(t *testing.T) {
	m, err := NewMembers(t.Context(), func(context.Context) (*Report, error) { return &Report{Root: &Node{}}, nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Has(t.Context(), []Object{{"Pod", "shop", "first"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Has(ctx, []Object{{"Pod", "shop", "web"}}); err != context.Canceled {
		t.Error(err)
	}
}
