package conformance

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// hasServerFinalizer reports whether a finalizer of the server holds deleted objects of the kind.
func (s *subject) hasServerFinalizer() bool {
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

// answersWithObject are the resources whose deletion answers with the object itself, according to the reference. The
// others answer with a Status.
var answersWithObject = map[string]bool{
	"pods": true, "services": true, "serviceaccounts": true, "persistentvolumes": true, "persistentvolumeclaims": true,
	"podtemplates": true, "resourcequotas": true, "storageclasses": true, "csinodes": true, "volumeattachments": true,
	"csidrivers":              true,
	"volumeattributesclasses": true, "resourceclaims": true, "resourceclaimtemplates": true, "resourceslices": true,
	"deviceclasses": true, "devicetaintrules": true,
}

// orphansByDefault reports whether the dependents of a deleted object stay unless the request has another policy.
func (s *subject) orphansByDefault() bool {
	return s.Resource == "replicationcontrollers" || s.Resource == "jobs"
}

func testDelete(t *testing.T, s *subject) {
	o, path := s.createObject(t)
	tried := s.mustAnswer(t, 200, remove(path+"?dryRun=All", nil))
	if tried.textAt("kind") == "" {
		t.Errorf("tried %s", tried.raw)
	}
	s.mustAnswer(t, 200, get("%s", path))
	a := s.mustAnswer(t, 200, remove(path, nil))
	switch {
	case s.orphansByDefault():
		if list, _ := a.valueAt("metadata.finalizers").([]any); !slices.Contains(list, any("orphan")) {
			t.Errorf("without a policy, dependents are not kept: %s", a.raw)
		}
		s.deleteWithFinalizers(t, path)
	case s.hasServerFinalizer():
		s.deleteWithFinalizers(t, path)
	case answersWithObject[s.Resource]:
		if a.textAt("kind") != s.Kind || a.textAt("metadata.uid") != objectUID(o) {
			t.Errorf("a deletion answers with the object: %s", a.raw)
		}
	default:
		if a.textAt("kind") != "Status" || a.textAt("status") != "Success" ||
			a.textAt("details.name") != objectName(o) ||
			a.textAt(
				"details.kind",
			) != s.Resource || a.textAt("details.uid") != objectUID(o) || a.textAt("details.group") != s.group() {
			t.Errorf("a deletion answers %s", a.raw)
		}
	}
	s.mustRefuse(t, get("%s", path), 404, "NotFound", "")
	s.mustRefuse(t, remove(path, nil), 404, "NotFound", s.qualifiedResource()+` "`+objectName(o)+`" not found`)
}

func testDeletePreconditions(t *testing.T, s *subject) {
	o, path := s.createObject(t)
	held := s.Kind + strings.TrimPrefix(s.qualifiedResource(), s.Resource) // unlike in other conflicts
	if s.Kind == "Event" {
		held = s.Kind // the name of the core group, whichever group the request used
	}
	s.mustRefuse(
		t,
		remove(path, object{"preconditions": object{"uid": "other"}}),
		409,
		"Conflict",
		"Operation cannot be fulfilled on "+held+` "`+objectName(
			o,
		)+`": the UID in the precondition (other) does not match the UID in record (`+objectUID(
			o,
		)+"). The object might have been deleted and then recreated",
	)
	s.mustRefuse(
		t,
		remove(path, object{"preconditions": object{"resourceVersion": "1"}}),
		409,
		"Conflict",
		"the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ("+resourceVersion(
			o,
		)+"). The object might have been modified",
	)
	bad := s.mustRefuse(t, remove(path+"?propagationPolicy=Wild", nil), 422, "Invalid",
		`propagationPolicy: Unsupported value: "Wild": supported values: "Foreground", "Background", "Orphan", "nil"`)
	if bad.textAt("details.kind") != "DeleteOptions" || bad.textAt("details.group") != "meta.k8s.io" {
		t.Errorf("details %v", bad.valueAt("details"))
	}
	s.mustRefuse(t, remove(path, object{"propagationPolicy": "Orphan", "orphanDependents": true}), 422, "Invalid",
		"orphanDependents and deletionPropagation cannot be both set")
	s.mustRefuse(t, remove(path+"?dryRun=Some", nil), 422, "Invalid", "dryRun: Unsupported value")
	s.mustRefuse(t, remove(path+"?gracePeriodSeconds=x", nil), 400, "BadRequest", "")
	s.mustRefuse(t, remove(path, "{"), 400, "BadRequest", "")
	s.mustAnswer(t, 200, remove(path,
		object{"preconditions": object{"uid": objectUID(o), "resourceVersion": resourceVersion(o)}}))
}

func testDeleteWithFinalizers(t *testing.T, s *subject) {
	for policy, finalizer := range map[string]string{"Foreground": "foregroundDeletion", "Orphan": "orphan"} {
		o, path := s.createObject(t)
		if s.Kind == "Event" { // has no dependents, so the policy does not matter
			s.mustAnswer(t, 200, remove(path+"?propagationPolicy="+policy, nil))
			s.mustRefuse(t, get("%s", path), 404, "NotFound", "")
			continue
		}
		held := s.mustAnswer(t, 200, remove(path+"?propagationPolicy="+policy, nil))
		list, _ := held.valueAt("metadata.finalizers").([]any)
		if held.textAt("kind") != s.Kind || held.textAt("metadata.deletionTimestamp") == "" ||
			!slices.Contains(list, any(finalizer)) {
			t.Fatalf("%s: %s", policy, held.raw)
		}
		if again := s.mustAnswer(t, 200, remove(path, nil)); again.textAt("metadata.uid") != objectUID(o) {
			t.Errorf("%s: deleted again: %s", policy, again.raw)
		}
		if policy == "Foreground" {
			// No finalizer can be added to an object that is being deleted. The test sends a patch, because the server
			// may be writing the object's status.
			more := object{"metadata": object{"finalizers": append(list, "example.com/more")}}
			s.mustRefuse(t, patch(path, "merge-patch+json", more), 422, "Invalid",
				"no new finalizers can be added if the object is being deleted")
		}
		s.deleteWithFinalizers(t, path)
	}
	o, path := s.newObject()
	o = s.mustAnswer(t, 201, post(s.collection(), withValue(o, "metadata.finalizers", []any{"example.com/hold"}))).obj
	held := s.mustAnswer(t, 200, remove(path+"?propagationPolicy=Background", object{"gracePeriodSeconds": 0}))
	if held.textAt("metadata.deletionTimestamp") == "" || held.valueAt("metadata.deletionGracePeriodSeconds") != 0.0 {
		t.Errorf("held %v", held.valueAt("metadata"))
	}
	stays := s.mustAnswer(t, 200, patch(path, "merge-patch+json",
		object{"metadata": object{"annotations": object{"a": "b"}, "deletionTimestamp": nil}}))
	if stays.textAt("metadata.deletionTimestamp") != held.textAt("metadata.deletionTimestamp") {
		t.Errorf("a deletion was taken back: %v", stays.valueAt("metadata"))
	}
	s.deleteWithFinalizers(t, path)
	again, _ := s.newObject()
	again = withValue(again, "metadata.name", objectName(o))
	if s.Kind != "CustomResourceDefinition" {
		if b := s.mustAnswer(t, 201, post(s.collection(), again)); objectUID(b.obj) == objectUID(o) {
			t.Error("a new object has the uid of an old one")
		}
	}
}

func testDeleteCollection(t *testing.T, s *subject) {
	selector, made := s.createLabelled(t, 3)
	query := "?labelSelector=" + url.QueryEscape(selector)
	all := s.collection() + query
	tried := s.mustAnswer(t, 200, remove(all+"&dryRun=All", nil))
	if tried.textAt("kind") != s.Kind+"List" {
		t.Errorf("tried %s", tried.raw)
	}
	if left := s.mustAnswer(t, 200, get("%s", all)); len(left.itemList()) != 3 {
		t.Fatalf("a dry run left %v", objectNames(left.itemList()))
	}
	first := s.mustAnswer(t, 200, remove(all+"&dryRun=All&limit=2", nil))
	rest := s.mustAnswer(t, 200,
		remove(all+"&dryRun=All&limit=2&continue="+url.QueryEscape(first.textAt("metadata.continue")), nil))
	if !slices.Equal(objectNames(first.itemList()), made[:2]) ||
		!slices.Equal(objectNames(rest.itemList()), made[2:]) ||
		rest.textAt("metadata.continue") != "" {
		t.Errorf("no more than two at a time of %v were to go: %s %s", made, first.raw, rest.raw)
	}
	one := s.collection() + query + "&fieldSelector=metadata.name%3D" + made[0]
	s.mustAnswer(t, 200, remove(one, object{"gracePeriodSeconds": 0, "propagationPolicy": "Background"}))
	if !s.hasServerFinalizer() {
		if left := s.mustAnswer(t, 200, get("%s", all)); !slices.Equal(objectNames(left.itemList()), made[1:]) {
			t.Errorf("deleting %s left %v of %v", made[0], objectNames(left.itemList()), made)
		}
	}
	a := s.mustAnswer(t, 200, remove(all, object{"gracePeriodSeconds": 0}))
	if a.textAt("kind") != s.Kind+"List" || len(a.itemList()) < 2 {
		t.Errorf("deleted %s", a.raw)
	}
	for _, n := range made {
		if b := s.do(t, get("%s/%s", s.collection(), n)); b.code == 200 {
			s.deleteWithFinalizers(t, s.collection()+"/"+n)
		}
	}
	s.mustRefuse(t, remove(s.collection()+"?labelSelector=a%20b", nil), 400, "BadRequest", "")
	s.mustRefuse(t, remove(s.collection()+"?propagationPolicy=Wild", nil), 422, "Invalid",
		"propagationPolicy: Unsupported value")
}
