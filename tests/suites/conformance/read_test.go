package conformance

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	tableType       = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partialType     = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	partialListType = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

func testGet(t *testing.T, s *subject) {
	o, path := s.createObject(t)
	a := s.mustAnswer(t, 200, get("%s", path))
	if !reflect.DeepEqual(a.obj, o) {
		t.Errorf("made %v\n got %v", o, a.obj)
	}
	for _, query := range []string{"?resourceVersion=0", "?resourceVersion=" + resourceVersion(o), "?pretty=true"} {
		if b := s.mustAnswer(t, 200, get("%s%s", path, query)); !reflect.DeepEqual(b.obj, o) {
			t.Errorf("%s: got %v", query, b.obj)
		}
	}
	missing := s.mustRefuse(t, get("%s-not", path), 404, "NotFound", s.qualifiedResource()+` "`+objectName(o)+`-not" not found`)
	if missing.textAt("details.name") != objectName(o)+"-not" || missing.textAt("details.kind") != s.Resource ||
		missing.textAt("details.group") != s.group() {
		t.Errorf("details %v", missing.valueAt("details"))
	}
	s.mustRefuse(t, get("%s?resourceVersion=x", path), 400, "BadRequest", "")
	later := s.mustRefuse(t, get("%s?resourceVersion=9000000000", path), 504, "Timeout",
		"Too large resource version: 9000000000, current: ")
	if later.textAt("details.causes.0.reason") != "ResourceVersionTooLarge" ||
		later.valueAt("details.retryAfterSeconds") == nil {
		t.Errorf("details %v", later.valueAt("details"))
	}
}

func testGetFormats(t *testing.T, s *subject) {
	o, path := s.createObject(t)
	a := s.mustAnswer(t, 200, get("%s", path).withAccept(partialType))
	if a.textAt("kind") != "PartialObjectMetadata" || a.textAt("apiVersion") != "meta.k8s.io/v1" ||
		!reflect.DeepEqual(a.valueAt("metadata"), o["metadata"]) ||
		len(a.obj) != 3 {
		t.Errorf("metadata alone: %s", a.raw)
	}
	row := s.mustAnswer(t, 200, get("%s", path).withAccept(tableType+",application/json"))
	checkTable(t, s, row, []string{objectName(o)}, "PartialObjectMetadata")
	whole := s.mustAnswer(t, 200, get("%s?includeObject=Object", path).withAccept(tableType))
	checkTable(t, s, whole, []string{objectName(o)}, s.Kind)
	none := s.mustAnswer(t, 200, get("%s?includeObject=None", path).withAccept(tableType))
	checkTable(t, s, none, []string{objectName(o)}, "")
	s.mustRefuse(t, get("%s?includeObject=Some", path).withAccept(tableType), 400, "BadRequest",
		"must be 'Metadata', 'Object', 'None', or empty")
	yaml := s.mustAnswer(t, 200, get("%s", path).withAccept("application/yaml"))
	if !strings.Contains(string(yaml.raw), "kind: "+s.Kind+"\n") ||
		yaml.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("YAML: %.300s", yaml.raw)
	}
	s.mustRefuse(t, get("%s", path).withAccept("text/csv"), 406, "NotAcceptable", "only the following media types "+
		"are accepted")
	if b := s.mustAnswer(t, 200, get("%s", path).withAccept("text/csv, */*;q=0.1")); b.textAt("kind") != s.Kind {
		t.Errorf("anything: %s", b.raw)
	}
}

// checkTable checks that an answer is a table of objects, whose rows contain objects of a kind.
func checkTable(t *testing.T, s *subject, a answer, names []string, carries string) {
	t.Helper()
	if a.textAt("kind") != "Table" || a.textAt("apiVersion") != "meta.k8s.io/v1" ||
		a.textAt("metadata.resourceVersion") == "" {
		t.Fatalf("no table: %.300s", a.raw)
	}
	columns, _ := a.valueAt("columnDefinitions").([]any)
	nameAt := -1
	for i, c := range columns {
		column, _ := c.(object)
		for _, field := range []string{"name", "type", "description"} {
			if text, _ := column[field].(string); text == "" {
				t.Errorf("column %d has no %s: %v", i, field, column)
			}
		}
		if column["format"] == "name" {
			nameAt = i
		}
	}
	if nameAt < 0 {
		t.Fatalf("no column is the name: %v", columns)
	}
	rows, _ := a.valueAt("rows").([]any)
	var got []string
	for _, r := range rows {
		cells, _ := valueAt(r, "cells").([]any)
		if len(cells) != len(columns) {
			t.Fatalf("%d cells in %d columns: %v", len(cells), len(columns), cells)
		}
		named := strings.Split(fmt.Sprint(cells[nameAt]), " ")[0]
		got = append(got, named)
		for i, cell := range cells {
			column, _ := columns[i].(object)
			_, isNumber := cell.(float64)
			_, isText := cell.(string)
			_, isTruth := cell.(bool)
			switch column["type"] {
			case "integer", "number":
				if !isNumber {
					t.Errorf("%v: cell %v is no number", column["name"], cell)
				}
			case "boolean":
				if !isTruth {
					t.Errorf("%v: cell %v is not true or false", column["name"], cell)
				}
			default:
				if !isText {
					t.Errorf("%v: cell %v is no text", column["name"], cell)
				}
			}
		}
		if kind, _ := valueAt(r, "object.kind").(string); kind != carries {
			t.Errorf("a row carries a %q, want %q", kind, carries)
		}
		if own, _ := valueAt(r, "object.metadata.name").(string); carries != "" && own != named {
			t.Errorf("the row of %s carries %s", named, own)
		}
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("rows of %v, want %v", got, names)
	}
}

func objectNames(list []any) []string {
	var out []string
	for _, item := range list {
		n, _ := valueAt(item, "metadata.name").(string)
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func testList(t *testing.T, s *subject) {
	selector, made := s.createLabelled(t, 2)
	a := s.mustAnswer(t, 200, get("%s?labelSelector=%s", s.collection(), url.QueryEscape(selector)))
	if a.textAt("kind") != s.Kind+"List" || a.textAt("apiVersion") != s.Version ||
		a.textAt("metadata.resourceVersion") == "" ||
		!slices.Equal(objectNames(a.itemList()), made) {
		t.Errorf("listed %.600s, want %v", a.raw, made)
	}
	everywhere := s.mustAnswer(t, 200, get("%s?labelSelector=%s", s.allPath(), url.QueryEscape(selector)))
	if !slices.Equal(objectNames(everywhere.itemList()), made) {
		t.Errorf("in all namespaces %v", objectNames(everywhere.itemList()))
	}
	for query, want := range map[string][]string{
		"labelSelector=" + url.QueryEscape(selector+",nobody"):                                      nil,
		"labelSelector=" + url.QueryEscape(selector+",!nobody"):                                     made,
		"labelSelector=" + url.QueryEscape(strings.Replace(selector, "=", " in (x,", 1)+")"):        made,
		"labelSelector=" + url.QueryEscape(selector+",nobody notin (a)"):                            made,
		"labelSelector=" + url.QueryEscape(selector) + "&fieldSelector=metadata.name%3D" + made[0]:  made[:1],
		"labelSelector=" + url.QueryEscape(selector) + "&fieldSelector=metadata.name!%3D" + made[0]: made[1:],
		"fieldSelector=metadata.name%3D" + made[1]:                                                  made[1:],
	} {
		if a := s.mustAnswer(t, 200, get("%s?%s", s.collection(), query)); !slices.Equal(objectNames(a.itemList()),
			want) ||
			a.valueAt("items") == nil {
			t.Errorf("%s: %v, want %v", query, objectNames(a.itemList()), want)
		}
	}
	if s.Namespaced {
		a := s.mustAnswer(t, 200, get("%s?fieldSelector=metadata.namespace%%3D%s,metadata.name%%3D%s", s.allPath(),
			s.namespace, made[0]))
		if !slices.Equal(objectNames(a.itemList()), made[:1]) {
			t.Errorf("by namespace %v", objectNames(a.itemList()))
		}
	}
	s.mustRefuse(t, get("%s?labelSelector=a%%20b", s.collection()), 400, "BadRequest", "unable to parse requirement")
	s.mustRefuse(t, get("%s?fieldSelector=nobody.knows%%3Dx", s.collection()), 400, "BadRequest",
		unknownField[kindsWithFieldSelectors[s.Resource]])
	s.mustRefuse(t, get("%s?fieldSelector=x", s.collection()), 400, "BadRequest", "invalid selector")
	s.mustRefuse(t, get("%s?resourceVersionMatch=Exact", s.collection()), 422, "Invalid",
		"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")
}

// unknownField is the error for an unknown field selector, for kinds with and without their own fields.
var unknownField = map[bool]string{
	true:  "field label not supported: nobody.knows",
	false: `"nobody.knows" is not a known field selector: only "metadata.name", "metadata.namespace"`,
}

func testListPages(t *testing.T, s *subject) {
	selector, made := s.createLabelled(t, 3)
	base := s.collection() + "?labelSelector=" + url.QueryEscape(selector)
	first := s.mustAnswer(t, 200, get("%s&limit=2", base))
	next := first.textAt("metadata.continue")
	if len(first.itemList()) != 2 || next == "" {
		t.Fatalf("first page: %s", first.raw)
	}
	// An object that is created later is not in a list that has begun.
	o, path := s.newObject()
	_, label, _ := strings.Cut(selector, "=")
	s.mustAnswer(t, 201, post(s.collection(), withValue(o, "metadata.labels", object{"conformance": label})))
	second := s.mustAnswer(t, 200, get("%s&limit=2&continue=%s", base, url.QueryEscape(next)))
	if second.textAt("metadata.resourceVersion") != first.textAt("metadata.resourceVersion") ||
		second.textAt("metadata.continue") != "" {
		t.Errorf("second page: %v", second.valueAt("metadata"))
	}
	if all := objectNames(append(first.itemList(), second.itemList()...)); !slices.Equal(all, made) {
		t.Errorf("all pages %v, want %v", all, made)
	}
	if whole := s.mustAnswer(t, 200, get("%s&limit=500", base)); len(whole.itemList()) != 4 ||
		whole.textAt("metadata.continue") != "" ||
		whole.valueAt("metadata.remainingItemCount") != nil {
		t.Errorf("one page for all: %v", whole.valueAt("metadata"))
	}
	s.mustRefuse(t, get("%s&continue=nonsense", base), 400, "BadRequest", "continue key is not valid")
	s.mustRefuse(t, get("%s&continue=%s&resourceVersion=7", base, url.QueryEscape(next)), 400, "BadRequest",
		"specifying resource version is not allowed when using continue")
	s.mustRefuse(t, get("%s&limit=x", base), 400, "BadRequest", "")
	s.do(t, remove(path, nil))
}

func testListFormats(t *testing.T, s *subject) {
	selector, made := s.createLabelled(t, 2)
	base := s.collection() + "?labelSelector=" + url.QueryEscape(selector)
	checkTable(t, s, s.mustAnswer(t, 200, get("%s", base).withAccept(tableType)), made, "PartialObjectMetadata")
	checkTable(t, s, s.mustAnswer(t, 200, get("%s&includeObject=Object", base).withAccept(tableType)), made, s.Kind)
	a := s.mustAnswer(t, 200, get("%s", base).withAccept(partialListType))
	if a.textAt("kind") != "PartialObjectMetadataList" || a.textAt("apiVersion") != "meta.k8s.io/v1" ||
		!slices.Equal(objectNames(a.itemList()), made) {
		t.Errorf("metadata alone: %.300s", a.raw)
	}
	yaml := s.mustAnswer(t, 200, get("%s", base).withAccept("application/yaml"))
	if !strings.Contains(string(yaml.raw), "kind: "+s.Kind+"List\n") {
		t.Errorf("YAML: %.300s", yaml.raw)
	}
	s.mustRefuse(t, get("%s", base).withAccept("image/png"), 406, "NotAcceptable", "only the following media types "+
		"are accepted")
}

func testUnsupportedMethods(t *testing.T, s *subject) {
	o, path := s.newObject()
	s.mustRefuse(t, put(s.collection(), o), 405, "MethodNotAllowed", "")
	s.mustRefuse(t, patch(s.collection(), "merge-patch+json", object{}), 405, "MethodNotAllowed", "")
	s.mustRefuse(t, post(path, o), 405, "MethodNotAllowed", "")
	if !s.hasVerb("deletecollection") {
		s.mustRefuse(t, remove(s.collection(), nil), 405, "MethodNotAllowed", "")
	}
	s.mustRefuse(t, get("%s/nosuch", path), 404, "NotFound", "the server could not find the requested resource")
	if s.Status == nil {
		s.mustRefuse(t, get("%s/status", path), 404, "NotFound", "the server could not find the requested resource")
	}
}
