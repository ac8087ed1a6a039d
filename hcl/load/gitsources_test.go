package load_test

import (
	"encoding/json"
	"testing"
)

// helm_release and kustomization blocks are GitSources, which depend on each other in the cluster, too.
// Proves P06.
func TestReleasesAndKustomizationsAreGitSources(t *testing.T) {
	c, err := loadBelow(t, `
helm_release "web" {
  repository = "https://charts.example/stable"
  chart      = "web"
  version    = "1.x"
  namespace  = "shop"
  values     = { replicas = 2 }
}
helm_release "db" {
  repository       = "oci://registry.example/charts/"
  chart            = "db"
  source_namespace = "team"
  depends_on       = [kustomization.base]
}
kustomization "base" {
  url = "https://git.example/platform.git"
}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"helm_release.web": `{"allowEmpty":false,"helm":{"chart":"web","values":{"replicas":2},"version":"1.x"},` +
			`"prune":true,"recreate":false,"renderer":"helm","targetNamespace":"shop",` +
			`"url":"https://charts.example/stable"}`,
		"helm_release.db": `{"allowEmpty":false,"dependsOn":[{"name":"base","namespace":"kube-system"}],"helm":{},` +
			`"prune":true,"recreate":false,"renderer":"helm","semver":"*","url":"oci://registry.example/charts/db"}`,
		"kustomization.base": `{"allowEmpty":false,"prune":true,"recreate":false,"renderer":"kustomize",` +
			`"url":"https://git.example/platform.git"}`,
	}
	for _, o := range c.Cluster.Objects {
		spec, err := json.Marshal(o.Content["spec"])
		if err != nil || string(spec) != want[o.Address] || !o.IsGitSource() {
			t.Errorf("%s: %s, %v, want %s", o.Address, spec, err, want[o.Address])
		}
		delete(want, o.Address)
	}
	if len(want) > 0 {
		t.Errorf("not declared: %v", want)
	}
}
