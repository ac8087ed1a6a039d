package apiserver_test

import (
	"fmt"
	"strings"
	"testing"
)

// applyShapes returns objects with n fields in different shapes: data keys of a ConfigMap, environment variables of a
// Deployment (an associative list), and the free-form data of a ControllerRevision.
var applyShapes = map[string]func(n int) (path, body string){
	"map": func(n int) (string, string) {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"k%d":"v"`, i))
		}
		return "/api/v1/namespaces/default/configmaps/a",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{` + strings.Join(list, ",") + `}}`
	},
	"list": func(n int) (string, string) {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"name":"E%d","value":"v"}`, i))
		}
		return deploymentPath + "/a", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},` +
			`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},` +
			`"spec":{"containers":[{"name":"c","image":"i","env":[` + strings.Join(list, ",") + `]}]}}}}`
	},
	"nested": func(n int) (string, string) {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"k%d":{"a":1}`, i))
		}
		return "/apis/apps/v1/namespaces/default/controllerrevisions/a",
			`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"a"},"revision":1,"data":{` +
				strings.Join(list, ",") + `}}`
	},
}

// BenchmarkApplyOfManyFields alternately applies an object with many fields as two field managers.
func BenchmarkApplyOfManyFields(b *testing.B) {
	for _, shape := range []string{"map", "list", "nested"} {
		for _, n := range []int{10_000, 30_000, 90_000} {
			b.Run(fmt.Sprintf("%s/%d", shape, n), func(b *testing.B) {
				cfg := startConfig(b, stores["memory"](b), nil)
				path, body := applyShapes[shape](n)
				for i := 0; b.Loop(); i++ {
					if code, text := sendRequest(b, cfg, "PATCH", path+fmt.Sprintf("?fieldManager=m%d&force=true", i%2),
						body,
						"Content-Type", applyType); code > 201 {
						b.Fatalf("%d %.300s", code, text)
					}
				}
			})
		}
	}
}
