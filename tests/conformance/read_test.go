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
	table    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partial  = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	partials = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

func gets(t *testing.T, s *subject) {
	o, path := s.created(t)
	a := s.must(t, 200, get("%s", path))
	if !reflect.DeepEqual(a.obj, o) {
		t.Errorf("made %v\n got %v", o, a.obj)
	}
	for _, query := range []string{"?resourceVersion=0", "?resourceVersion=" + version(o), "?pretty=true"} {
		if b := s.must(t, 200, get("%s%s", path, query)); !reflect.DeepEqual(b.obj, o) {
			t.Errorf("%s: got %v", query, b.obj)
		}
	}
	missing := s.refused(t, get("%s-not", path), 404, "NotFound", s.qualified()+` "`+name(o)+`-not" not found`)
	if missing.text("details.name") != name(o)+"-not" || missing.text("details.kind") != s.Resource ||
		missing.text("details.group") != s.group() {
		t.Errorf("details %v", missing.at("details"))
	}
	s.refused(t, get("%s?resourceVersion=x", path), 400, "BadRequest", "")
	later := s.refused(
		t,
		get("%s?resourceVersion=9000000000", path),
		504,
		"Timeout",
		"Too large resource version: 9000000000, current: ",
	)
	if later.text("details.causes.0.reason") != "ResourceVersionTooLarge" ||
		later.at("details.retryAfterSeconds") == nil {
		t.Errorf("details %v", later.at("details"))
	}
}

func getsAs(t *testing.T, s *subject) {
	o, path := s.created(t)
	a := s.must(t, 200, get("%s", path).as(partial))
	if a.text("kind") != "PartialObjectMetadata" || a.text("apiVersion") != "meta.k8s.io/v1" ||
		!reflect.DeepEqual(a.at("metadata"), o["metadata"]) ||
		len(a.obj) != 3 {
		t.Errorf("metadata alone: %s", a.raw)
	}
	row := s.must(t, 200, get("%s", path).as(table+",application/json"))
	mustBeTable(t, s, row, []string{name(o)}, "PartialObjectMetadata")
	whole := s.must(t, 200, get("%s?includeObject=Object", path).as(table))
	mustBeTable(t, s, whole, []string{name(o)}, s.Kind)
	none := s.must(t, 200, get("%s?includeObject=None", path).as(table))
	mustBeTable(t, s, none, []string{name(o)}, "")
	s.refused(
		t,
		get("%s?includeObject=Some", path).as(table),
		400,
		"BadRequest",
		"must be 'Metadata', 'Object', 'None', or empty",
	)
	yaml := s.must(t, 200, get("%s", path).as("application/yaml"))
	if !strings.Contains(string(yaml.raw), "kind: "+s.Kind+"\n") ||
		yaml.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("YAML: %.300s", yaml.raw)
	}
	s.refused(t, get("%s", path).as("text/csv"), 406, "NotAcceptable", "only the following media types are accepted")
	if b := s.must(t, 200, get("%s", path).as("text/csv, */*;q=0.1")); b.text("kind") != s.Kind {
		t.Errorf("anything: %s", b.raw)
	}
}

// mustBeTable checks that an answer is a table of objects, whose rows contain objects of a kind.
func mustBeTable(t *testing.T, s *subject, a answer, names []string, carries string) {
	t.Helper()
	if a.text("kind") != "Table" || a.text("apiVersion") != "meta.k8s.io/v1" ||
		a.text("metadata.resourceVersion") == "" {
		t.Fatalf("no table: %.300s", a.raw)
	}
	columns, _ := a.at("columnDefinitions").([]any)
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
	rows, _ := a.at("rows").([]any)
	var got []string
	for _, r := range rows {
		cells, _ := at(r, "cells").([]any)
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
		if kind, _ := at(r, "object.kind").(string); kind != carries {
			t.Errorf("a row carries a %q, want %q", kind, carries)
		}
		if own, _ := at(r, "object.metadata.name").(string); carries != "" && own != named {
			t.Errorf("the row of %s carries %s", named, own)
		}
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("rows of %v, want %v", got, names)
	}
}

func names(list []any) []string {
	var out []string
	for _, item := range list {
		n, _ := at(item, "metadata.name").(string)
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func lists(t *testing.T, s *subject) {
	selector, made := s.some(t, 2)
	a := s.must(t, 200, get("%s?labelSelector=%s", s.collection(), url.QueryEscape(selector)))
	if a.text("kind") != s.Kind+"List" || a.text("apiVersion") != s.Version ||
		a.text("metadata.resourceVersion") == "" ||
		!slices.Equal(names(a.items()), made) {
		t.Errorf("listed %.600s, want %v", a.raw, made)
	}
	everywhere := s.must(t, 200, get("%s?labelSelector=%s", s.everywhere(), url.QueryEscape(selector)))
	if !slices.Equal(names(everywhere.items()), made) {
		t.Errorf("in all namespaces %v", names(everywhere.items()))
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
		if a := s.must(t, 200, get("%s?%s", s.collection(), query)); !slices.Equal(names(a.items()), want) ||
			a.at("items") == nil {
			t.Errorf("%s: %v, want %v", query, names(a.items()), want)
		}
	}
	if s.Namespaced {
		a := s.must(
			t,
			200,
			get("%s?fieldSelector=metadata.namespace%%3D%s,metadata.name%%3D%s", s.everywhere(), s.ns, made[0]),
		)
		if !slices.Equal(names(a.items()), made[:1]) {
			t.Errorf("by namespace %v", names(a.items()))
		}
	}
	s.refused(t, get("%s?labelSelector=a%%20b", s.collection()), 400, "BadRequest", "unable to parse requirement")
	s.refused(
		t,
		get("%s?fieldSelector=nobody.knows%%3Dx", s.collection()),
		400,
		"BadRequest",
		unknownField[fielded[s.Resource]],
	)
	s.refused(t, get("%s?fieldSelector=x", s.collection()), 400, "BadRequest", "invalid selector")
	s.refused(
		t,
		get("%s?resourceVersionMatch=Exact", s.collection()),
		422,
		"Invalid",
		"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
	)
}

// unknownField is the error for an unknown field selector, for kinds with and without their own fields.
var unknownField = map[bool]string{
	true:  "field label not supported: nobody.knows",
	false: `"nobody.knows" is not a known field selector: only "metadata.name", "metadata.namespace"`,
}

func listsPages(t *testing.T, s *subject) {
	selector, made := s.some(t, 3)
	base := s.collection() + "?labelSelector=" + url.QueryEscape(selector)
	first := s.must(t, 200, get("%s&limit=2", base))
	next := first.text("metadata.continue")
	if len(first.items()) != 2 || next == "" {
		t.Fatalf("first page: %s", first.raw)
	}
	// An object that is created later is not in a list that has begun.
	o, path := s.new()
	_, label, _ := strings.Cut(selector, "=")
	s.must(t, 201, post(s.collection(), with(o, "metadata.labels", object{"conformance": label})))
	second := s.must(t, 200, get("%s&limit=2&continue=%s", base, url.QueryEscape(next)))
	if second.text("metadata.resourceVersion") != first.text("metadata.resourceVersion") ||
		second.text("metadata.continue") != "" {
		t.Errorf("second page: %v", second.at("metadata"))
	}
	if all := names(append(first.items(), second.items()...)); !slices.Equal(all, made) {
		t.Errorf("all pages %v, want %v", all, made)
	}
	if whole := s.must(t, 200, get("%s&limit=500", base)); len(whole.items()) != 4 ||
		whole.text("metadata.continue") != "" ||
		whole.at("metadata.remainingItemCount") != nil {
		t.Errorf("one page for all: %v", whole.at("metadata"))
	}
	s.refused(t, get("%s&continue=nonsense", base), 400, "BadRequest", "continue key is not valid")
	s.refused(
		t,
		get("%s&continue=%s&resourceVersion=7", base, url.QueryEscape(next)),
		400,
		"BadRequest",
		"specifying resource version is not allowed when using continue",
	)
	s.refused(t, get("%s&limit=x", base), 400, "BadRequest", "")
	s.do(t, remove(path, nil))
}

func listsAs(t *testing.T, s *subject) {
	selector, made := s.some(t, 2)
	base := s.collection() + "?labelSelector=" + url.QueryEscape(selector)
	mustBeTable(t, s, s.must(t, 200, get("%s", base).as(table)), made, "PartialObjectMetadata")
	mustBeTable(t, s, s.must(t, 200, get("%s&includeObject=Object", base).as(table)), made, s.Kind)
	a := s.must(t, 200, get("%s", base).as(partials))
	if a.text("kind") != "PartialObjectMetadataList" || a.text("apiVersion") != "meta.k8s.io/v1" ||
		!slices.Equal(names(a.items()), made) {
		t.Errorf("metadata alone: %.300s", a.raw)
	}
	yaml := s.must(t, 200, get("%s", base).as("application/yaml"))
	if !strings.Contains(string(yaml.raw), "kind: "+s.Kind+"List\n") {
		t.Errorf("YAML: %.300s", yaml.raw)
	}
	s.refused(t, get("%s", base).as("image/png"), 406, "NotAcceptable", "only the following media types are accepted")
}

func refusesMethods(t *testing.T, s *subject) {
	o, path := s.new()
	s.refused(t, put(s.collection(), o), 405, "MethodNotAllowed", "")
	s.refused(t, patch(s.collection(), "merge-patch+json", object{}), 405, "MethodNotAllowed", "")
	s.refused(t, post(path, o), 405, "MethodNotAllowed", "")
	if !s.serves("deletecollection") {
		s.refused(t, remove(s.collection(), nil), 405, "MethodNotAllowed", "")
	}
	s.refused(t, get("%s/nosuch", path), 404, "NotFound", "the server could not find the requested resource")
	if s.Status == nil {
		s.refused(t, get("%s/status", path), 404, "NotFound", "the server could not find the requested resource")
	}
}
