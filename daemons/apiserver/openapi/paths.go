package openapi

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds"
)

// resource is a kind in one group version.
type resource struct {
	kind *kinds.Kind
	gvk  schema.GroupVersionKind
	name string
	obj  runtime.Object
	list runtime.Object
}

func (r resource) same(other resource) bool { return r.kind == other.kind && r.gvk == other.gvk }

func resources(list []*kinds.Kind) []resource {
	var out []resource
	for _, k := range list {
		if k.Untyped != nil {
			out = append(out, resource{kind: k, gvk: k.GVK, name: k.Resource})
			continue
		}
		r := resource{kind: k, gvk: k.GVK, name: k.Resource, obj: k.New()}
		if k.NewList != nil && (!k.Virtual || slices.Contains(k.Verbs, "list")) {
			r.list = k.NewList()
		}
		out = append(out, r)
		for _, a := range k.Aliases {
			r := resource{kind: k, gvk: a.GVK, name: k.Resource, obj: a.New()}
			if a.Resource != "" {
				r.name = a.Resource
			}
			if a.NewList != nil {
				r.list = a.NewList()
			}
			out = append(out, r)
		}
	}
	return out
}

func base(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.String()
}

// register records the kind of each type.
func (s *schemas) register(list []resource) {
	for _, r := range list {
		if r.kind.Untyped != nil {
			continue
		}
		s.kinds[typeOf(r.obj)] = append(s.kinds[typeOf(r.obj)], r.gvk)
		if r.list != nil {
			gvk := r.gvk
			gvk.Kind += "List"
			s.kinds[typeOf(r.list)] = append(s.kinds[typeOf(r.list)], gvk)
		}
	}
}

func typeOf(obj runtime.Object) reflect.Type { return reflect.TypeOf(obj).Elem() }

// paths adds the paths and operations of a resource.
func (s *schemas) paths(to object, r resource) {
	ref, listRef := s.models(r)
	prefix := base(r.gvk.GroupVersion())
	collection := prefix + "/" + r.name
	var shared []object
	if r.kind.Namespaced {
		collection = prefix + "/namespaces/{namespace}/" + r.name
		shared = append(shared, s.parameter("namespace", "path", "string"))
	}
	item := collection + "/{name}"
	many := object{"parameters": shared}
	if shared == nil {
		many["parameters"] = []object{}
	}
	one := object{"parameters": append(slices.Clone(shared), s.parameter("name", "path", "string"))}
	for _, o := range operations {
		if !o.serves(r.kind) {
			continue
		}
		target, answer := one, ref
		if o.collection {
			target = many
			if o.action == "list" {
				answer = listRef
			}
		}
		target[o.method] = s.operation(o, r, ref, answer)
	}
	to[collection] = many
	if len(one) > 0 {
		to[item] = one
		if r.kind.Namespaced {
			if get, ok := many["get"]; ok {
				to[prefix+"/"+r.name] = object{"get": get}
			}
		}
	}
}

// operation describes a verb in a document.
type operation struct {
	verb, method, action string
	collection, body     bool
	query                []string
}

var (
	writes     = []string{"dryRun", "fieldManager", "fieldValidation"}
	operations = []operation{
		{
			verb:       "list",
			method:     "get",
			action:     "list",
			collection: true,
			query: []string{
				"labelSelector",
				"fieldSelector",
				"limit",
				"continue",
				"resourceVersion",
				"resourceVersionMatch",
				"watch",
				"allowWatchBookmarks",
				"sendInitialEvents",
				"timeoutSeconds",
			},
		},
		{verb: "create", method: "post", action: "post", collection: true, body: true, query: writes},
		{
			verb:       "deletecollection",
			method:     "delete",
			action:     "deletecollection",
			collection: true,
			query:      []string{"labelSelector", "fieldSelector", "dryRun", "propagationPolicy", "gracePeriodSeconds"},
		},
		{verb: "get", method: "get", action: "get", query: []string{"resourceVersion"}},
		{verb: "update", method: "put", action: "put", body: true, query: writes},
		{verb: "patch", method: "patch", action: "patch", body: true, query: append([]string{"force"}, writes...)},
		{
			verb:   "delete",
			method: "delete",
			action: "delete",
			query:  []string{"dryRun", "propagationPolicy", "gracePeriodSeconds"},
		},
	}
)

func (o operation) serves(k *kinds.Kind) bool {
	switch {
	case k.Virtual && k.Verbs == nil:
		return o.verb == "create"
	case k.Verbs == nil:
		return true
	}
	return slices.Contains(k.Verbs, o.verb)
}

var queryTypes = map[string]string{
	"limit": "integer", "timeoutSeconds": "integer", "gracePeriodSeconds": "integer",
	"watch": "boolean", "allowWatchBookmarks": "boolean", "sendInitialEvents": "boolean", "force": "boolean",
}

func (s *schemas) parameter(name, in, kind string) object {
	p := object{"name": name, "in": in, "uniqueItems": true}
	if in == "path" {
		p["required"] = true
	}
	if s.v3 {
		delete(p, "uniqueItems")
		p["schema"] = object{"type": kind}
	} else {
		p["type"] = kind
	}
	return p
}

const anyJSON = "application/json"

func (s *schemas) operation(o operation, r resource, ref, answer string) object {
	var parameters []object
	for _, name := range o.query {
		kind := queryTypes[name]
		if kind == "" {
			kind = "string"
		}
		parameters = append(parameters, s.parameter(name, "query", kind))
	}
	out := object{
		extension: gvk(r.gvk), "x-kubernetes-action": o.action,
		"operationId": o.verb + r.gvk.Group + r.gvk.Version + r.gvk.Kind,
	}
	schemaOf := func(ref string) object { return object{"$ref": ref} }
	if s.v3 {
		if o.body {
			body := object{anyJSON: object{"schema": schemaOf(ref)}}
			if o.verb == "patch" {
				body = object{}
				for _, kind := range []string{"application/apply-patch+yaml", "application/json-patch+json",
					"application/merge-patch+json", "application/strategic-merge-patch+json"} {
					if r.kind.Untyped != nil && kind == "application/strategic-merge-patch+json" {
						continue
					}
					body[kind] = object{"schema": object{"type": "object"}}
				}
			}
			out["requestBody"] = object{"content": body}
		}
		out["responses"] = object{
			"200": object{"description": "OK", "content": object{anyJSON: object{"schema": schemaOf(answer)}}},
		}
	} else {
		if o.body {
			body := object{"name": "body", "in": "body", "required": true, "schema": schemaOf(ref)}
			if o.verb == "patch" {
				body["schema"] = object{"type": "object"}
			}
			parameters = append(parameters, body)
		}
		out["responses"] = object{"200": object{"description": "OK", "schema": schemaOf(answer)}}
	}
	if len(parameters) > 0 {
		out["parameters"] = parameters
	}
	return out
}
