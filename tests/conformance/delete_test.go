package conformance

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// lingers reports whether a finalizer of the server holds deleted objects of the kind.
func (s *subject) lingers() bool {
	return slices.Contains(
		[]string{
			"Namespace",
			"CustomResourceDefinition",
			"PersistentVolume",
			"PersistentVolumeClaim",
			"VolumeAttributesClass",
		},
		s.Kind,
	)
}

// answersWhole are the resources whose deletion answers with the object itself, according to the reference. The others
// answer with a Status.
var answersWhole = map[string]bool{
	"pods": true, "services": true, "serviceaccounts": true, "persistentvolumes": true, "persistentvolumeclaims": true,
	"podtemplates": true, "resourcequotas": true, "storageclasses": true, "csinodes": true, "volumeattachments": true,
	"csidrivers":              true,
	"volumeattributesclasses": true, "resourceclaims": true, "resourceclaimtemplates": true, "resourceslices": true,
	"deviceclasses": true, "devicetaintrules": true,
}

func deletes(t *testing.T, s *subject) {
	o, path := s.created(t)
	tried := s.must(t, 200, remove(path+"?dryRun=All", nil))
	if tried.text("kind") == "" {
		t.Errorf("tried %s", tried.raw)
	}
	s.must(t, 200, get("%s", path))
	a := s.must(t, 200, remove(path, nil))
	switch {
	case s.lingers():
		s.erase(t, path)
	case answersWhole[s.Resource]:
		if a.text("kind") != s.Kind || a.text("metadata.uid") != uid(o) {
			t.Errorf("a deletion answers with the object: %s", a.raw)
		}
	default:
		if a.text("kind") != "Status" || a.text("status") != "Success" || a.text("details.name") != name(o) ||
			a.text(
				"details.kind",
			) != s.Resource || a.text("details.uid") != uid(o) || a.text("details.group") != s.group() {
			t.Errorf("a deletion answers %s", a.raw)
		}
	}
	s.refused(t, get("%s", path), 404, "NotFound", "")
	s.refused(t, remove(path, nil), 404, "NotFound", s.qualified()+` "`+name(o)+`" not found`)
}

func deletesConditionally(t *testing.T, s *subject) {
	o, path := s.created(t)
	held := s.Kind + strings.TrimPrefix(s.qualified(), s.Resource) // unlike in other conflicts
	if s.Kind == "Event" {
		held = s.Kind // the name of the core group, whichever group the request used
	}
	s.refused(
		t,
		remove(path, object{"preconditions": object{"uid": "other"}}),
		409,
		"Conflict",
		"Operation cannot be fulfilled on "+held+` "`+name(
			o,
		)+`": the UID in the precondition (other) does not match the UID in record (`+uid(
			o,
		)+"). The object might have been deleted and then recreated",
	)
	s.refused(
		t,
		remove(path, object{"preconditions": object{"resourceVersion": "1"}}),
		409,
		"Conflict",
		"the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ("+version(
			o,
		)+"). The object might have been modified",
	)
	bad := s.refused(
		t,
		remove(path+"?propagationPolicy=Wild", nil),
		422,
		"Invalid",
		`propagationPolicy: Unsupported value: "Wild": supported values: "Foreground", "Background", "Orphan", "nil"`,
	)
	if bad.text("details.kind") != "DeleteOptions" || bad.text("details.group") != "meta.k8s.io" {
		t.Errorf("details %v", bad.at("details"))
	}
	s.refused(
		t,
		remove(path, object{"propagationPolicy": "Orphan", "orphanDependents": true}),
		422,
		"Invalid",
		"orphanDependents and deletionPropagation cannot be both set",
	)
	s.refused(t, remove(path+"?dryRun=Some", nil), 422, "Invalid", "dryRun: Unsupported value")
	s.refused(t, remove(path+"?gracePeriodSeconds=x", nil), 400, "BadRequest", "")
	s.refused(t, remove(path, "{"), 400, "BadRequest", "")
	s.must(t, 200, remove(path, object{"preconditions": object{"uid": uid(o), "resourceVersion": version(o)}}))
}

func deletesFinally(t *testing.T, s *subject) {
	for policy, finalizer := range map[string]string{"Foreground": "foregroundDeletion", "Orphan": "orphan"} {
		o, path := s.created(t)
		held := s.must(t, 200, remove(path+"?propagationPolicy="+policy, nil))
		list, _ := held.at("metadata.finalizers").([]any)
		if held.text("kind") != s.Kind || held.text("metadata.deletionTimestamp") == "" ||
			!slices.Contains(list, any(finalizer)) {
			t.Fatalf("%s: %s", policy, held.raw)
		}
		if again := s.must(t, 200, remove(path, nil)); again.text("metadata.uid") != uid(o) {
			t.Errorf("%s: deleted again: %s", policy, again.raw)
		}
		if policy == "Foreground" {
			// No finalizer can be added to an object that is being deleted. The test sends a patch, because the server
			// may be writing the object's status.
			more := object{"metadata": object{"finalizers": append(list, "example.com/more")}}
			s.refused(
				t,
				patch(path, "merge-patch+json", more),
				422,
				"Invalid",
				"no new finalizers can be added if the object is being deleted",
			)
		}
		s.erase(t, path)
	}
	o, path := s.new()
	o = s.must(t, 201, post(s.collection(), with(o, "metadata.finalizers", []any{"example.com/hold"}))).obj
	held := s.must(t, 200, remove(path+"?propagationPolicy=Background", object{"gracePeriodSeconds": 0}))
	if held.text("metadata.deletionTimestamp") == "" || held.at("metadata.deletionGracePeriodSeconds") != 0.0 {
		t.Errorf("held %v", held.at("metadata"))
	}
	stays := s.must(
		t,
		200,
		patch(
			path,
			"merge-patch+json",
			object{"metadata": object{"annotations": object{"a": "b"}, "deletionTimestamp": nil}},
		),
	)
	if stays.text("metadata.deletionTimestamp") != held.text("metadata.deletionTimestamp") {
		t.Errorf("a deletion was taken back: %v", stays.at("metadata"))
	}
	s.erase(t, path)
	again, _ := s.new()
	again = with(again, "metadata.name", name(o))
	if s.Kind != "CustomResourceDefinition" {
		if b := s.must(t, 201, post(s.collection(), again)); uid(b.obj) == uid(o) {
			t.Error("a new object has the uid of an old one")
		}
	}
}

func deletesMany(t *testing.T, s *subject) {
	selector, made := s.some(t, 3)
	query := "?labelSelector=" + url.QueryEscape(selector)
	all := s.collection() + query
	tried := s.must(t, 200, remove(all+"&dryRun=All", nil))
	if tried.text("kind") != s.Kind+"List" {
		t.Errorf("tried %s", tried.raw)
	}
	if left := s.must(t, 200, get("%s", all)); len(left.items()) != 3 {
		t.Fatalf("a dry run left %v", names(left.items()))
	}
	first := s.must(t, 200, remove(all+"&dryRun=All&limit=2", nil))
	rest := s.must(
		t,
		200,
		remove(all+"&dryRun=All&limit=2&continue="+url.QueryEscape(first.text("metadata.continue")), nil),
	)
	if !slices.Equal(names(first.items()), made[:2]) || !slices.Equal(names(rest.items()), made[2:]) ||
		rest.text("metadata.continue") != "" {
		t.Errorf("no more than two at a time of %v were to go: %s %s", made, first.raw, rest.raw)
	}
	one := s.collection() + query + "&fieldSelector=metadata.name%3D" + made[0]
	s.must(t, 200, remove(one, object{"gracePeriodSeconds": 0}))
	if !s.lingers() {
		if left := s.must(t, 200, get("%s", all)); !slices.Equal(names(left.items()), made[1:]) {
			t.Errorf("deleting %s left %v of %v", made[0], names(left.items()), made)
		}
	}
	a := s.must(t, 200, remove(all, object{"gracePeriodSeconds": 0}))
	if a.text("kind") != s.Kind+"List" || len(a.items()) < 2 {
		t.Errorf("deleted %s", a.raw)
	}
	for _, n := range made {
		if b := s.do(t, get("%s/%s", s.collection(), n)); b.code == 200 {
			s.erase(t, s.collection()+"/"+n)
		}
	}
	s.refused(t, remove(s.collection()+"?labelSelector=a%20b", nil), 400, "BadRequest", "")
	s.refused(
		t,
		remove(s.collection()+"?propagationPolicy=Wild", nil),
		422,
		"Invalid",
		"propagationPolicy: Unsupported value",
	)
}
