package cache

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/daemons/kinds"
)

// Kind returns the version that the entry is in.
func (e *Entry) Kind() *kinds.Kind { return e.kind }

// ConvertTo returns the same object in another version of its kind. It is converted at the first call.
func (e *Entry) ConvertTo(ctx context.Context, to *kinds.Kind) (*Entry, error) {
	if e == nil || to.Untyped == nil || e.kind == to {
		return e, nil
	}
	one := []*Entry{e}
	if err := Convert(ctx, one, to); err != nil {
		return nil, err
	}
	return one[0], nil
}

// Convert replaces entries by the same objects in another version. All that need converting are converted together.
func Convert(ctx context.Context, entries []*Entry, to *kinds.Kind) error {
	if to.Untyped == nil {
		return nil
	}
	var others []int
	var objs []*unstructured.Unstructured
	for i, e := range entries {
		if e == nil || e.kind == to {
			continue
		}
		if current := e.cachedVersion(to); current != nil {
			entries[i] = current
			continue
		}
		obj, err := e.Object()
		if err != nil {
			return err
		}
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("convert the %s %s: it is a %T", e.kind.GVK.Kind, e.Key, obj)
		}
		others, objs = append(others, i), append(objs, u)
	}
	if len(objs) == 0 {
		return nil
	}
	made, err := to.Untyped.Family.Convert(ctx, objs, to)
	if err != nil {
		return err
	}
	for n, i := range others {
		data, err := Encode(to, made[n])
		if err != nil {
			return err
		}
		converted, err := NewEntry(to, entries[i].Key, data, entries[i].Revision, made[n])
		if err != nil {
			return err
		}
		entries[i] = entries[i].addVersion(converted)
	}
	return nil
}

func (e *Entry) cachedVersion(to *kinds.Kind) *Entry {
	if list := e.forms.versions.Load(); list != nil {
		for _, v := range *list {
			if v.kind == to {
				return v
			}
		}
	}
	return nil
}

// addVersion stores a converted version of the entry. If that version is stored already, addVersion returns the stored
// one.
func (e *Entry) addVersion(v *Entry) *Entry {
	for {
		if current := e.cachedVersion(v.kind); current != nil {
			return current
		}
		before := e.forms.versions.Load()
		var next []*Entry
		if before != nil {
			next = append(next, *before...)
		}
		next = append(next, v)
		if e.forms.versions.CompareAndSwap(before, &next) {
			return v
		}
	}
}

// ConvertTo returns the event in another version of its kind.
func (e *Event) ConvertTo(ctx context.Context, to *kinds.Kind) (*Event, error) {
	both := []*Entry{e.Entry, e.Prev}
	if err := Convert(ctx, both, to); err != nil {
		return nil, err
	}
	return &Event{Revision: e.Revision, Entry: both[0], Prev: both[1], WasUnreadable: e.WasUnreadable}, nil
}
