// Package events lists the events of a cluster with the rights of the caller, and groups those that repeat.
package events

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/hcl/config"
	"clusterctl/kube/why"
)

const (
	deadline = 30 * time.Second // limits the time of all requests together
	pageSize = 500
	maxPages = 20
)

// Lister lists the events of one namespace or of all.
type Lister interface {
	List(ctx context.Context, options metav1.ListOptions) (*corev1.EventList, error)
}

// Filter selects events. Empty fields select all.
type Filter struct {
	// Objects reports for each object whether its events are selected.
	Objects func(context.Context, []corev1.ObjectReference) ([]bool, error)
	Type    string
	Since   time.Time
}

// OfObject selects the events of one object.
func OfObject(kind, name string) func(context.Context, []corev1.ObjectReference) ([]bool, error) {
	return func(_ context.Context, objects []corev1.ObjectReference) ([]bool, error) {
		selected := make([]bool, len(objects))
		for i, o := range objects {
			selected[i] = o.Kind == kind && o.Name == name
		}
		return selected, nil
	}
}

// Group is one or more events of an object that have the same type, reason and message.
type Group struct {
	Namespace string    `json:"namespace"`
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	Type      string    `json:"type"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Count     int64     `json:"count"`
	Last      time.Time `json:"last"`
}

// Report holds the groups, the newest last.
type Report struct {
	Groups []Group `json:"events"`
	// Truncated means that the cluster has more events than were read.
	Truncated bool `json:"truncated"`
}

// List returns the events that a filter selects, in groups.
func List(ctx context.Context, from Lister, f Filter) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	all, _, truncated, err := read(ctx, from)
	if err != nil {
		return nil, err
	}
	selected, err := f.choose(ctx, all)
	if err != nil {
		return nil, err
	}
	return &Report{Groups: group(selected), Truncated: truncated}, nil
}

// read returns the events of all pages up to a limit, and the resource version of the list.
func read(ctx context.Context, from Lister) (all []corev1.Event, version string, truncated bool, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for range maxPages {
		page, err := from.List(ctx, options)
		if err != nil {
			return nil, "", false, fmt.Errorf("list events: %w", err)
		}
		all, version = append(all, page.Items...), page.ResourceVersion
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	return all, version, options.Continue != "", nil
}

// choose returns the events that the filter selects.
func (f Filter) choose(ctx context.Context, all []corev1.Event) ([]*corev1.Event, error) {
	var selected []*corev1.Event
	var objects []corev1.ObjectReference
	for i := range all {
		if e := &all[i]; (f.Type == "" || e.Type == f.Type) && !why.EventTime(e).Before(f.Since) {
			selected, objects = append(selected, e), append(objects, e.InvolvedObject)
		}
	}
	if f.Objects == nil || len(selected) == 0 {
		return selected, nil
	}
	isSelected, err := f.Objects(ctx, objects)
	if err != nil {
		return nil, err
	}
	var chosen []*corev1.Event
	for i, e := range selected {
		if isSelected[i] {
			chosen = append(chosen, e)
		}
	}
	return chosen, nil
}

// newGroup returns a group of one event.
func newGroup(e *corev1.Event) Group {
	g := keyOf(e)
	g.Count, g.Last = count(e), why.EventTime(e)
	return g
}

// keyOf returns what the events of a group have in common.
func keyOf(e *corev1.Event) Group {
	return Group{Namespace: e.Namespace, Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, Type: e.Type,
		Reason: e.Reason, Message: e.Message}
}

func group(all []*corev1.Event) []Group {
	groups := map[Group]*Group{}
	for _, e := range all {
		one := newGroup(e)
		g := groups[keyOf(e)]
		if g == nil {
			groups[keyOf(e)] = &one
			continue
		}
		g.Count += one.Count
		if one.Last.After(g.Last) {
			g.Last = one.Last
		}
	}
	out := make([]Group, 0, len(groups))
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Group) int {
		return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message),
			cmp.Compare(a.Type, b.Type))
	})
	return out
}

// count returns how often an event occurred.
func count(e *corev1.Event) int64 {
	if e.Series != nil {
		return max(1, int64(e.Series.Count))
	}
	return max(1, int64(e.Count))
}

// Print writes a table of the events. It escapes control characters.
func Print(w io.Writer, r *Report, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "AGE\tTYPE\tCOUNT\tNAMESPACE\tOBJECT\tREASON\tMESSAGE")
	for _, g := range r.Groups {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", now.Sub(g.Last).Round(time.Second), cell(g.Type), g.Count,
			cell(g.Namespace), cell(g.Kind+"/"+g.Name), cell(g.Reason), cell(g.Message))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Truncated {
		_, err := fmt.Fprintf(w, "The cluster has more events; the first %d were read.\n", pageSize*maxPages)
		return err
	}
	return nil
}

// cell returns a text as one cell of a table.
func cell(text string) string {
	line := []rune(config.EscapeLine(text))
	for i, c := range line {
		if c == '\t' {
			line[i] = ' '
		}
	}
	return string(line)
}
