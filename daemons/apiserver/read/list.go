package read

import (
	"errors"
	"math"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
)

// List answers with the selected objects. It streams them from an immutable snapshot.
func (s *Reads) List(q *request.Request) error {
	o, err := q.ListOptions()
	if err != nil {
		return err
	}
	sel, err := Select(q)
	if err != nil {
		return err
	}
	limit := pageLimit(o)
	start := time.Now()
	snapshot, revision, from, err := s.snapshot(q, &sel, o)
	counts := s.reads.countsOf(q)
	if o.Continue == "" && o.ResourceVersion != "0" && o.ResourceVersionMatch != metav1.ResourceVersionMatchExact {
		counts.recordWait(start, o.ResourceVersion == "", err)
	}
	if err == nil {
		err = sel.checkReadable(q)
	}
	if err != nil {
		return err
	}
	l := wire.List{Rows: q.IncludeObject()}
	l.Meta.ResourceVersion = strconv.FormatInt(revision, 10)
	left := int64(-1) // how many objects remain from here on, if known
	if sel.hasNoSelectors() {
		switch left = from.Remaining; {
		case left > 0:
		case from.Start == "":
			left = int64(snapshot.Count(q.Namespace))
		default:
			left = -1
		}
		l.Entries = make([]*cache.Entry, 0, listCapacity(snapshot.Count(q.Namespace), limit))
	}
	more, rest := false, int64(0)
	err = sel.eachConverted(q, snapshot, from.Start, func(e *cache.Entry) bool {
		if limit > 0 && len(l.Entries) == limit {
			more = true
			rest++
			// Like upstream, report the number of remaining objects only without selectors.
			return sel.hasNoSelectors() && left < 0
		}
		l.Entries = append(l.Entries, e)
		return true
	})
	if left >= 0 {
		rest = max(left-int64(len(l.Entries)), 1)
	}
	if err == nil {
		err = q.Convert(l.Entries)
	}
	if err != nil {
		return err
	}
	if more {
		next := continueToken{Version: tokenVersion, Revision: revision, Start: l.Entries[limit-1].Key}
		if sel.hasNoSelectors() {
			l.Meta.RemainingItemCount, next.Remaining = &rest, rest
		}
		l.Meta.Continue = next.String()
	}
	counts.recordList(&sel, len(l.Entries))
	return q.Media.WriteList(q.Answer, q.Served, l)
}

// Page is a page of a list, without the answer.
type Page struct {
	q         *request.Request
	options   metav1.ListOptions
	selection Selection
}

// ParsePage returns the page that a request names.
func ParsePage(q *request.Request) (Page, error) {
	o, err := q.ListOptions()
	if err != nil {
		return Page{}, err
	}
	sel, err := Select(q)
	return Page{q, o, sel}, err
}

// Choose returns the objects of a page, in the version in which they are stored, and the metadata of their list.
func (s *Reads) Choose(p Page) (chosen []*cache.Entry, list metav1.ListMeta, err error) {
	limit := pageLimit(p.options)
	snapshot, revision, from, err := s.snapshot(p.q, &p.selection, p.options)
	if err != nil {
		return nil, list, err
	}
	if err := p.selection.checkReadable(p.q); err != nil {
		return nil, list, err
	}
	next := continueToken{Version: tokenVersion, Revision: revision}
	err = p.selection.eachConverted(p.q, snapshot, from.Start, func(e *cache.Entry) bool {
		if limit > 0 && len(chosen) == limit {
			next.Start = chosen[limit-1].Key
			return false
		}
		chosen = append(chosen, e)
		return true
	})
	list.ResourceVersion = strconv.FormatInt(revision, 10)
	if next.Start != "" {
		list.Continue = next.String()
	}
	return chosen, list, err
}

// pageLimit returns the maximum number of objects in the response; 0 means no limit.
func pageLimit(o metav1.ListOptions) int {
	return int(min(max(o.Limit, 0), math.MaxInt32))
}

// listCapacity returns the maximum number of objects on a page.
func listCapacity(all, limit int) int {
	if limit > 0 {
		return min(all, limit)
	}
	return all
}

// snapshot returns the state that a list reads, and the token where it starts. The parameters resourceVersion,
// resourceVersionMatch and continue choose both.
func (s *Reads) snapshot(
	q *request.Request,
	sel *Selection,
	o metav1.ListOptions,
) (snapshot *cache.Snapshot, revision int64, from continueToken, err error) {
	version, ctx := o.ResourceVersion, q.HTTP.Context()
	if o.Continue != "" {
		t, err := parseToken(o.Continue)
		if err != nil {
			return nil, 0, continueToken{}, err
		}
		if version != "" && version != "0" {
			return nil, 0, continueToken{}, apierrors.NewBadRequest(
				"specifying resource version is not allowed when using continue")
		}
		if t.Revision == inconsistentRevision {
			reached, err := s.WaitForVersion(ctx, "")
			if err != nil {
				return nil, 0, continueToken{}, err
			}
			snapshot := q.Cache.Snapshot()
			return snapshot, max(reached, snapshot.Revision), continueToken{Start: t.Start}, nil
		}
		snapshot, rest, err := s.snapshotAt(q, sel, t.Revision, t.Start, pageLimit(o))
		if t.Remaining > 0 && rest > 0 {
			t.Remaining = rest
		}
		if errors.Is(err, cache.ErrExpired) {
			err = expiredToken(t)
		}
		return snapshot, t.Revision, t, err
	}
	// Paged lists at a version have always been exact.
	pages := o.Limit > 0 && o.ResourceVersionMatch == "" && version != "" && version != "0"
	if pages || o.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		exact, err := parseVersion(version)
		if err != nil {
			return nil, 0, continueToken{}, invalidVersion(err)
		}
		snapshot, rest, err := s.snapshotAt(q, sel, exact, "", pageLimit(o))
		return snapshot, exact, continueToken{Remaining: rest}, expiredRevision(err, exact, q.Cache.Revision())
	}
	reached, err := s.WaitForVersion(ctx, version)
	if err != nil {
		return nil, 0, continueToken{}, err
	}
	snapshot = q.Cache.Snapshot()
	return snapshot, max(reached, snapshot.Revision), continueToken{}, nil
}
