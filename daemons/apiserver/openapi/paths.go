package openapi

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds"
)

// servedResource is a kind in one group version.
type servedResource struct {
	kind *kinds.Kind
	gvk  schema.GroupVersionKind
	name string
	obj  runtime.Object
	list runtime.Object
}

func (r servedResource) equal(other servedResource) bool {
	return r.kind == other.kind && r.gvk == other.gvk
}

func servedResources(list []*kinds.Kind) []servedResource {
	var out []servedResource
	for _, k := range list {
		if k.Untyped != nil {
			out = append(out, servedResource{kind: k, gvk: k.GVK, name: k.Resource})
			continue
		}
		r := servedResource{kind: k, gvk: k.GVK, name: k.Resource, obj: k.New()}
		if k.NewList != nil && (!k.Virtual || slices.Contains(k.Verbs, "list")) {
			r.list = k.NewList()
		}
		out = append(out, r)
		for _, a := range k.Aliases {
			r := servedResource{kind: k, gvk: a.GVK, name: k.Resource, obj: a.New()}
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

func basePath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.String()
}

// register records the kind of each type.
func (s *schemaSet) register(list []servedResource) {
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
func (s *schemaSet) paths(to jsonObject, r servedResource) {
	ref, listRef := s.models(r)
	prefix := basePath(r.gvk.GroupVersion())
	collection := prefix + "/" + r.name
	var shared []jsonObject
	if r.kind.Namespaced {
		collection = prefix + "/namespaces/{namespace}/" + r.name
		shared = append(shared, s.parameter("namespace", "path", "string"))
	}
	item := collection + "/{name}"
	many := jsonObject{"parameters": shared}
	if shared == nil {
		many["parameters"] = []jsonObject{}
	}
	one := jsonObject{"parameters": append(slices.Clone(shared), s.parameter("name", "path", "string"))}
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
				to[prefix+"/"+r.name] = jsonObject{"get": get}
			}
		}
	}
}

// operationInfo describes a verb in a document.
type operationInfo struct {
	verb, method, action string
	collection, body     bool
	query                []string
}

var (
	writeParameters = []string{"dryRun", "fieldManager", "fieldValidation"}
	operations      = []operationInfo{
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
		{verb: "create", method: "post", action: "post", collection: true, body: true, query: writeParameters},
		{
			verb:       "deletecollection",
			method:     "delete",
			action:     "deletecollection",
			collection: true,
			query:      []string{"labelSelector", "fieldSelector", "dryRun", "propagationPolicy", "gracePeriodSeconds"},
		},
		{verb: "get", method: "get", action: "get", query: []string{"resourceVersion"}},
		{verb: "update", method: "put", action: "put", body: true, query: writeParameters},
		{verb: "patch", method: "patch", action: "patch", body: true,
			query: append([]string{"force"}, writeParameters...)},
		{
			verb:   "delete",
			method: "delete",
			action: "delete",
			query:  []string{"dryRun", "propagationPolicy", "gracePeriodSeconds"},
		},
	}
)

func (o operationInfo) serves(k *kinds.Kind) bool {
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

func (s *schemaSet) parameter(name, in, kind string) jsonObject {
	p := jsonObject{"name": name, "in": in, "uniqueItems": true}
	if in == "path" {
		p["required"] = true
	}
	if s.v3 {
		delete(p, "uniqueItems")
		p["schema"] = jsonObject{"type": kind}
	} else {
		p["type"] = kind
	}
	return p
}

const anyJSON = "application/json"

func (s *schemaSet) operation(o operationInfo, r servedResource, ref, answer string) jsonObject {
	var parameters []jsonObject
	for _, name := range o.query {
		kind := queryTypes[name]
		if kind == "" {
			kind = "string"
		}
		parameters = append(parameters, s.parameter(name, "query", kind))
	}
	out := jsonObject{
		gvkExtension: gvk(r.gvk), "x-kubernetes-action": o.action,
		"operationId": o.verb + r.gvk.Group + r.gvk.Version + r.gvk.Kind,
	}
	schemaOf := func(ref string) jsonObject { return jsonObject{"$ref": ref} }
	if s.v3 {
		if o.body {
			body := jsonObject{anyJSON: jsonObject{"schema": schemaOf(ref)}}
			if o.verb == "patch" {
				body = jsonObject{}
				for _, kind := range []string{"application/apply-patch+yaml", "application/json-patch+json",
					"application/merge-patch+json", "application/strategic-merge-patch+json"} {
					if r.kind.Untyped != nil && kind == "application/strategic-merge-patch+json" {
						continue
					}
					body[kind] = jsonObject{"schema": jsonObject{"type": "object"}}
				}
			}
			out["requestBody"] = jsonObject{"content": body}
		}
		out["responses"] = jsonObject{
			"200": jsonObject{"description": "OK",
				"content": jsonObject{anyJSON: jsonObject{"schema": schemaOf(answer)}}},
		}
	} else {
		if o.body {
			body := jsonObject{"name": "body", "in": "body", "required": true, "schema": schemaOf(ref)}
			if o.verb == "patch" {
				body["schema"] = jsonObject{"type": "object"}
			}
			parameters = append(parameters, body)
		}
		out["responses"] = jsonObject{"200": jsonObject{"description": "OK", "schema": schemaOf(answer)}}
	}
	if len(parameters) > 0 {
		out["parameters"] = parameters
	}
	return out
}
