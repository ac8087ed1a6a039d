package dashboard

import "testing"

// settledActions returns the actions that the page shows after the server has answered which ones the visitor may use.
const settledActions = `import('/app/access.js').then(async (access) => {
	await access.allowed({verb: 'get', resource: 'pods'});
	return [...document.querySelectorAll('.actions button')].map((e) => e.textContent);
})`

// TestAReadOnlyUserSeesNoActionThatWouldFail visits pages with the rights of the cluster role view, which reads neither
// Secrets nor nodes.
// Proves S34.
func TestAReadOnlyUserSeesNoActionThatWouldFail(t *testing.T) {
	token, err := createToken(t.Context(), "reader", "view")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := writeKubeconfig("reader", token)
	if err != nil {
		t.Fatal(err)
	}
	readOnly, err := startDashboard(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := readOnly.stop(); err != nil {
			t.Error(err)
		}
	})
	p := openTab(t, readOnly, "/")
	p.waitText("What is not well")
	for _, address := range []string{"/p/object/apps/v1/deployments/shop/web",
		"/p/object/batch/v1/cronjobs/shop/report",
		"/p/object/core/v1/pods/shop/db-0", "/p/object/core/v1/configmaps/shop/settings"} {
		p.open(address)
		p.waitText("Created")
		if actions := evaluate[[]string](p, settledActions); len(actions) > 0 {
			t.Errorf("%s shows the actions %q", address, actions)
		}
		if p.has("[role=tab]", "Terminal") {
			t.Errorf("%s shows a terminal", address)
		}
	}
	p.open("/p/object/core/v1/configmaps/shop/settings?tab=yaml")
	p.waitText("kind: ConfigMap")
	if p.has("button", "Edit") {
		t.Error("the YAML can be edited")
	}
	p.open("/p/config?kind=secrets&ns=shop")
	p.waitText("cannot list resource")
	p.picture("forbidden-light")
}
