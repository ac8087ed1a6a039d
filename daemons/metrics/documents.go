package metrics

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// document is a discovery or OpenAPI document.
type document struct {
	text []byte
	etag string
}

// documents holds the documents by path.
var documents = func() map[string]*document {
	out := map[string]*document{}
	for path, text := range map[string]string{
		"/apis":                        `{"kind":"APIGroupList","apiVersion":"v1","groups":[{` + groupDocument + `}]}`,
		"/apis/metrics.k8s.io":         `{"kind":"APIGroup","apiVersion":"v1",` + groupDocument + `}`,
		"/apis/metrics.k8s.io/v1beta1": resourcesDocument,
		"/openapi/v2":                  `{"swagger":"2.0",` + openAPIInfo + `"paths":{` + openAPIPaths("#/definitions/") + `},"definitions":{` + openAPISchemas("#/definitions/") + `}}`,
		"/openapi/v3":                  `{"paths":{"apis/metrics.k8s.io/v1beta1":{"serverRelativeURL":"/openapi/v3/apis/metrics.k8s.io/v1beta1?hash=1"}}}`,
		"/openapi/v3/apis/metrics.k8s.io/v1beta1": `{"openapi":"3.0.0",` + openAPIInfo + `"paths":{` + openAPIPaths("#/components/schemas/") +
			`},"components":{"schemas":{` + openAPISchemas("#/components/schemas/") + `}}}`,
	} {
		out[path] = &document{[]byte(text), fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text)))}
	}
	return out
}()

const (
	groupDocument     = `"name":"metrics.k8s.io","versions":[{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}],"preferredVersion":{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}`
	resourcesDocument = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1","resources":[` +
		`{"name":"nodes","singularName":"","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]},` +
		`{"name":"pods","singularName":"","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}]}`
	openAPIInfo   = `"info":{"title":"metrics-server","version":"v1beta1"},`
	openAPIPrefix = "io.k8s.metrics.pkg.apis.metrics.v1beta1."
)

// openAPIPaths describes the requests. at is the location of the schemas.
func openAPIPaths(at string) string {
	var list []string
	for _, p := range []struct{ path, kind, action string }{
		{"nodes", "NodeMetrics", "list"}, {"nodes/{name}", "NodeMetrics", "get"}, {"pods", "PodMetrics", "list"},
		{"namespaces/{namespace}/pods", "PodMetrics", "list"},
		{"namespaces/{namespace}/pods/{name}", "PodMetrics", "get"},
	} {
		answer, ref := p.kind, `{"$ref":"`+at+openAPIPrefix
		if p.action == "list" {
			answer += "List"
		}
		ok := `"schema":` + ref + answer + `"}`
		param := func(name string) string {
			if strings.HasPrefix(at, "#/components") {
				return `{"name":"` + name + `","in":"path","required":true,"schema":{"type":"string"}}`
			}
			return `{"name":"` + name + `","in":"path","required":true,"type":"string"}`
		}
		var params []string
		for _, name := range []string{"name", "namespace"} {
			if strings.Contains(p.path, "{"+name+"}") {
				params = append(params, param(name))
			}
		}
		if strings.HasPrefix(at, "#/components") {
			ok = `"content":{"application/json":{` + ok + `}}`
		}
		list = append(
			list,
			`"/apis/metrics.k8s.io/v1beta1/`+p.path+`":{"get":{"responses":{"200":{"description":"OK",`+ok+`}},"x-kubernetes-action":"`+p.action+
				`","x-kubernetes-group-version-kind":`+openAPIKind(p.kind)+`},"parameters":[`+strings.Join(params,
				",")+`]}`,
		)
	}
	return strings.Join(list, ",")
}

func openAPIKind(kind string) string {
	return `{"group":"metrics.k8s.io","kind":"` + kind + `","version":"v1beta1"}`
}

// openAPISchemas describes the kinds. It refers to no other document, so that it is complete by itself.
func openAPISchemas(at string) string {
	const (
		usage = `"usage":{"description":"What is used, by resource: cpu on average over the window, memory as the working set at its end.","type":"object","additionalProperties":{"type":"string"}}`
		kind  = `"apiVersion":{"description":"The version of this representation.","type":"string"},"kind":{"description":"The kind of this object.","type":"string"},`
		when  = `"timestamp":{"description":"When the window ends.","type":"string","format":"date-time"},"window":{"description":"How long the time is in which the use was measured.","type":"string"},`
		meta  = `"metadata":{"description":"The name and labels of what is measured.","type":"object"},`
	)
	object := func(name, about, properties, required string) string {
		return `"` + openAPIPrefix + name + `":{"description":"` + about + `","type":"object","properties":{` + properties + `},"required":[` + required + `],"x-kubernetes-group-version-kind":[` + openAPIKind(
			name,
		) + `]}`
	}
	many := func(of string) string {
		return kind + `"metadata":{"description":"Of the list.","type":"object"},"items":{"description":"One for each.","type":"array","items":{"$ref":"` + at + openAPIPrefix + of + `"}}`
	}
	return strings.Join([]string{
		object("NodeMetrics", "NodeMetrics is what a node uses.", kind+meta+when+usage, `"timestamp","window","usage"`),
		object("NodeMetricsList", "NodeMetricsList is a list of NodeMetrics.", many("NodeMetrics"), `"items"`),
		object("PodMetrics", "PodMetrics is what the containers of a pod use.", kind+meta+when+
			`"containers":{"description":"All in the same window.","type":"array","items":{"$ref":"`+at+openAPIPrefix+`ContainerMetrics"}}`, `"timestamp","window","containers"`),
		object("PodMetricsList", "PodMetricsList is a list of PodMetrics.", many("PodMetrics"), `"items"`),
		`"` + openAPIPrefix + `ContainerMetrics":{"description":"ContainerMetrics is what a container uses.","type":"object","properties":{"name":{"description":"The name of the container.","type":"string"},` + usage + `},"required":["name","usage"]}`,
	}, ",")
}
