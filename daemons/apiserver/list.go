package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
)

// selection describes the objects of a kind that a request selects.
type selection struct {
	prefix     string // of the keys: the namespace and a slash, or empty for all
	name       string // a single name, from metadata.name=
	labels     labels.Selector
	fields     fields.Selector
	fieldIndex int // 1 + index of the indexed field that the selector fixes; 0 if none
	value      string
	examined   int // how many entries were examined
}

func selectionOf(q *request.Request) (selection, error) {
	sel := selection{labels: labels.Everything(), fields: fields.Everything()}
	if q.Namespace != "" {
		sel.prefix = q.Namespace + "/"
	}
	var err error
	if q.LabelSelector != "" {
		if sel.labels, err = labels.Parse(q.LabelSelector); err != nil {
			return sel, apierrors.NewBadRequest(err.Error())
		}
	}
	if q.FieldSelector == "" {
		return sel, nil
	}
	if sel.fields, err = fields.ParseSelector(q.FieldSelector); err != nil {
		return sel, apierrors.NewBadRequest(err.Error())
	}
	known := fields.Set{"metadata.name": ""}
	if q.Served.Namespaced {
		known["metadata.namespace"] = ""
	}
	if q.Served.Fields != nil {
		for name := range q.Served.Fields(q.Served.New()) {
			known[name] = ""
		}
	}
	for _, r := range sel.fields.Requirements() {
		if !known.Has(r.Field) {
			return sel, unknownField(q, r.Field)
		}
	}
	if name, ok := sel.fields.RequiresExactMatch("metadata.name"); ok {
		sel.name = name
	}
	if namespace, ok := sel.fields.RequiresExactMatch("metadata.namespace"); ok && q.Namespace == "" &&
		q.Served.Namespaced {
		sel.prefix = namespace + "/"
	}
	for i, name := range q.Served.IndexedFields {
		if value, ok := sel.fields.RequiresExactMatch(name); ok {
			sel.fieldIndex, sel.value = i+1, value
			break
		}
	}
	return sel, nil
}

// unknownField refuses to select by an unsupported field. For a kind without fields of its own, the error lists the
// supported fields.
func unknownField(q *request.Request, label string) error {
	if q.Served.Fields == nil && q.Served.Untyped == nil {
		_, _, err := runtime.DefaultMetaV1FieldSelectorConversion(label, "")
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	return apierrors.NewBadRequest("field label not supported: " + label)
}

// matches reports whether an entry is selected.
func (sel *selection) matches(e *cache.Entry) bool {
	return e != nil && strings.HasPrefix(e.Key, sel.prefix) && sel.selects(e)
}

// selects is like matches, for an entry whose key has the prefix. It reads the key only of selected entries, because
// the key is seldom in the processor's cache.
func (sel *selection) selects(e *cache.Entry) bool {
	return (sel.labels.Empty() || sel.labels.Matches(e.Labels)) &&
		(sel.fields.Empty() || sel.fields.Matches(e.Fields()))
}

// hasNoSelectors reports whether the request selects only by namespace.
func (sel *selection) hasNoSelectors() bool { return sel.labels.Empty() && sel.fields.Empty() }

// each calls f for the selected entries of a snapshot whose keys follow after, in order. It stops when f returns false.
func (sel *selection) each(q *request.Request, snapshot *cache.Snapshot, after string, f func(*cache.Entry) bool) {
	match := func(e *cache.Entry) bool {
		sel.examined++
		return !sel.selects(e) || f(e)
	}
	if sel.fieldIndex > 0 && snapshot.AscendField(q.Served.IndexedFields[sel.fieldIndex-1], sel.value, sel.prefix,
		after, match) {
		return
	}
	snapshot.Ascend(sel.prefix, after, match)
}

// conversionBatch is how many objects are converted at a time before they are selected from.
const conversionBatch = 500

// eachConverted is like each. If the selector uses fields that depend on the version, it converts the entries to the
// version of the request first. Otherwise the entries are in the version in which they are stored.
func (sel *selection) eachConverted(q *request.Request, snapshot *cache.Snapshot, after string,
	f func(*cache.Entry) bool) error {
	if !sel.dependsOnVersion(q) {
		sel.each(q, snapshot, after, f)
		return nil
	}
	for more := true; more; {
		var some []*cache.Entry
		snapshot.Ascend(sel.prefix, after, func(e *cache.Entry) bool {
			after = e.Key
			sel.examined++
			if sel.labels.Matches(e.Labels) {
				some = append(some, e)
			}
			return len(some) < conversionBatch
		})
		more = len(some) == conversionBatch
		if err := cache.Convert(q.HTTP.Context(), some, q.Served.Kind); err != nil {
			return err
		}
		for _, e := range some {
			if sel.fields.Matches(e.Fields()) && !f(e) {
				return nil
			}
		}
	}
	return nil
}

// dependsOnVersion reports whether the selection depends on the version of the request.
func (sel *selection) dependsOnVersion(q *request.Request) bool {
	if q.Served.Untyped == nil || len(q.Served.Untyped.Family.Versions) < 2 {
		return false
	}
	for _, r := range sel.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return true
		}
	}
	return false
}

// continueToken is the content of a continue parameter: continue after the key Start, at a revision.
type continueToken struct {
	Version   string `json:"v"`
	Revision  int64  `json:"rv"`
	Start     string `json:"start"`
	Remaining int64  `json:"rest,omitempty"` // how many objects follow, if known
}

const tokenVersion = "meta.k8s.io/v1"

// inconsistentRevision is the revision of an inconsistent continue token, which resumes at the current state. A client
// gets one when its list has expired, and may use it instead of listing again.
const inconsistentRevision = -1

func (t continueToken) String() string {
	data, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func parseToken(text string) (continueToken, error) {
	var t continueToken
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	why := ""
	switch {
	case err != nil:
		why = ": " + err.Error()
	case t.Version != tokenVersion:
		why = ": server does not recognize this encoded version " + t.Version
	case t.Revision == 0 || t.Revision < inconsistentRevision:
		why = ": incorrect encoded start resourceVersion (version " + tokenVersion + ")"
	case t.Start == "":
		why = ": encoded start key empty (version " + tokenVersion + ")"
	default:
		return t, nil
	}
	return t, apierrors.NewBadRequest("invalid continue token: continue key is not valid" + why)
}

// expiredToken returns the error for a token whose revision is not available any more. The error has an inconsistent
// token.
func expiredToken(t continueToken) error {
	t.Revision, t.Remaining = inconsistentRevision, 0
	err := apierrors.NewResourceExpired(
		"The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response to " +
			"retrieve the remainder of the results. " +
			"Continuing with the provided token results in an inconsistent list - objects that were created, " +
			"modified, or deleted between " +
			"the time the first chunk was returned and now may show up in the list.",
	)
	err.ErrStatus.ListMeta.Continue = t.String()
	return err
}

// list answers with the selected objects. It streams them from an immutable snapshot.
func (s *Server) list(q *request.Request) error {
	o, err := q.ListOptions()
	if err != nil {
		return err
	}
	sel, err := selectionOf(q)
	if err != nil {
		return err
	}
	limit := pageLimit(o)
	began := time.Now()
	snapshot, revision, from, err := s.snapshot(q, &sel, o)
	counts := s.metrics.reads.countsOf(q)
	if o.Continue == "" && o.ResourceVersion != "0" && o.ResourceVersionMatch != metav1.ResourceVersionMatchExact {
		counts.recordWait(began, o.ResourceVersion == "", err)
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
func (s *Server) snapshot(
	q *request.Request,
	sel *selection,
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
				"specifying resource version is not allowed when using continue",
			)
		}
		if t.Revision == inconsistentRevision {
			reached, err := s.waitForVersion(ctx, "")
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
	reached, err := s.waitForVersion(ctx, version)
	if err != nil {
		return nil, 0, continueToken{}, err
	}
	snapshot = q.Cache.Snapshot()
	return snapshot, max(reached, snapshot.Revision), continueToken{}, nil
}
