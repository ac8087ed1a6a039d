package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// pages are all pages, each with a text that it has when it is complete.
var pages = []struct{ name, address, text string }{
	{"overview", "/", "What is not well"},
	{"nodes", "/p/nodes", "node-3"},
	{"workloads", "/p/workloads", "stuck"},
	{"statefulsets", "/p/workloads?kind=statefulsets&ns=shop", "db"},
	{"pods", "/p/pods", "db-1"},
	{"network", "/p/network", "ClusterIP"},
	{"storage", "/p/storage", "Pending"},
	{"config", "/p/config?ns=shop", "settings"},
	{"events", "/p/events", "Scheduled"},
	{"gitops", "/p/gitops", "FetchFailed"},
	{"certificates", "/p/certificates", "API server"},
	{"etcd", "/p/etcd", "Not visible to you"},
	{"kinds", "/p/kinds", "gitsources"},
	{"list", "/p/list/gitops.clusterctl.local/v1/gitsources", "platform"},
	{"deployment", "/p/object/apps/v1/deployments/shop/web", "Available 3/3"},
	{"node", "/p/object/core/v1/nodes/-/node-1", "KubeletReady"},
	{"service", "/p/object/core/v1/services/shop/web", "8080/TCP"},
	{"ingress", "/p/object/networking.k8s.io/v1/ingresses/shop/shop", "shop.example"},
	{"claim", "/p/object/core/v1/persistentvolumeclaims/shop/data", "absent"},
	{"configmap", "/p/object/core/v1/configmaps/shop/settings", "greeting"},
	{"secret", "/p/object/core/v1/secrets/shop/login", "password"},
	{"pod", "/p/object/core/v1/pods/shop/db-0", "registry.example/db:15"},
	{"why", "/p/object/apps/v1/deployments/shop/stuck?tab=why", "What to do"},
	{"object-events", "/p/object/core/v1/pods/shop/db-0?tab=events", "Scheduled"},
	{"related", "/p/object/apps/v1/deployments/shop/web?tab=related", "ReplicaSet"},
	{"yaml", "/p/object/apps/v1/deployments/shop/web?tab=yaml", "apiVersion: apps/v1"},
}

// noSidewaysScroll is true if the body and the page are not wider than the window.
const noSidewaysScroll = `document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth &&
	document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth`

// Proves S34.
func TestEveryPageShowsItsContentWithoutErrorsInTheConsole(t *testing.T) {
	p := openTab(t, board, "/")
	for _, page := range pages {
		p.open(page.address)
		p.waitText(page.text)
		p.picture(page.name + "-light")
		p.scheme("dark")
		p.picture(page.name + "-dark")
		p.checkContrast(page.name)
	}
}

func TestPagesOfAPhonesWidthDoNotScrollSideways(t *testing.T) {
	p := openTab(t, board, "/")
	p.do(chromedp.EmulateViewport(360, 740))
	for _, page := range pages {
		p.open(page.address)
		p.waitText(page.text)
		if !evaluate[bool](p, noSidewaysScroll) {
			t.Errorf("%s scrolls sideways: %s", page.name, evaluate[string](p, widest))
		}
		p.picture(page.name + "-360")
	}
	p.click("button", "Menu")
	p.wait("the navigation", element("nav a", "Pods"))
	p.picture("menu-360")
	p.click("nav a", "Pods")
	p.wait("the pods", `location.pathname === '/p/pods'`)
	p.wait("the menu to close", "!"+element("nav a", "Storage"))
}

// widest names the elements that end beyond the window.
const widest = `[...document.querySelectorAll('main *, header *')].filter((e) =>
	e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, .table, .code, .diff, .tabs, .log'))
	.slice(0, 3).map((e) => e.tagName + '.' + e.className).join(' ')`

// lowContrast returns texts whose contrast with their background is below WCAG's level AA: 4.5, or 3 for large text.
const lowContrast = `(() => {
	const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
	const parse = (text) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = text;
		canvas.fillRect(0, 0, 1, 1);
		const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
		return [r, g, b, a / 255];
	};
	const over = (top, below) => top.slice(0, 3).map((v, i) => v * top[3] + below[i] * (1 - top[3]));
	const luminance = (c) => {
		const [r, g, b] = c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const background = (element) => {
		const layers = [];
		for (let e = element; e; e = e.parentElement) layers.unshift(parse(getComputedStyle(e).backgroundColor));
		return layers.reduce((below, top) => over(top, below), [255, 255, 255]);
	};
	const low = new Set();
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const element = walker.currentNode.parentElement;
		const text = walker.currentNode.textContent.trim();
		if (!text || element.closest('.hidden, option, datalist, :disabled') || !element.checkVisibility()) continue;
		const style = getComputedStyle(element);
		const colour = element instanceof SVGElement ? style.fill : style.color;
		const below = background(element);
		const [a, b] = [luminance(over(parse(colour), below)), luminance(below)].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		const size = parseFloat(style.fontSize);
		const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
		if (ratio < (isLarge ? 3 : 4.5)) low.add(ratio.toFixed(2) + ' ' + text.slice(0, 40));
	}
	return [...low];
})()`

func TestTheThemeCanBeSwitchedAndIsRemembered(t *testing.T) {
	p := openTab(t, board, "/")
	p.scheme("light")
	colour := `getComputedStyle(document.body).backgroundColor`
	light := evaluate[string](p, colour)
	p.click("button", "Theme")
	p.wait("dark colours", colour+" !== "+quote(light))
	p.open("/p/pods")
	if evaluate[string](p, colour) == light {
		t.Error("the theme is light again on another page")
	}
	p.click("button", "Theme")
	p.wait("light colours", colour+" === "+quote(light))
}

func TestContentThatIsAScriptAppearsAsText(t *testing.T) {
	p := openTab(t, board, "/")
	for _, address := range []string{
		"/p/object/core/v1/configmaps/shop/settings", "/p/object/apps/v1/deployments/shop/web",
		"/p/object/core/v1/configmaps/shop/settings?tab=yaml",
	} {
		p.open(address)
		p.waitText("window.attacked = true")
		if evaluate[bool](p, "window.attacked === true") {
			t.Errorf("%s: a script from the cluster has run", address)
		}
	}
	p.open("/p/pods?filter=" + "%3Cscript%3Ewindow.attacked=true%3C/script%3E")
	p.waitText("No object matches the filter.")
	if evaluate[bool](p, "window.attacked === true") {
		t.Error("a script in the address has run")
	}
}

func TestTheOverviewNamesWhatIsNotWellAndExplainsIt(t *testing.T) {
	p := openTab(t, board, "/")
	p.waitText("What is not well")
	p.click(".problem-list a", "shop/stuck")
	p.waitText("What to do")
	if got := p.text(); !strings.Contains(got, "disk") {
		t.Errorf("the explanation does not name the node selector:\n%s", got)
	}
}

// signInShown is the condition that the page for signing in is shown.
const signInShown = `location.pathname === '/signin' && document.body?.innerText.includes('not signed in')`

func TestSigningOutEndsTheSession(t *testing.T) {
	p := openTab(t, board, "/p/pods")
	p.waitText("db-0")
	p.click("button", "Sign out")
	p.wait("the page for signing in", signInShown)
	p.picture("signin-light")
	p.scheme("dark")
	p.picture("signin-dark")
	p.checkContrast("the page for signing in")
	p.do(chromedp.Navigate(p.base + "/p/pods"))
	p.wait("the page for signing in again", signInShown)
}

func TestAPageOpensTheSignInPageWhenItsSessionHasEnded(t *testing.T) {
	p := openTab(t, board, "/p/pods")
	p.waitText("db-0")
	p.expect("401")
	p.expect("WebSocket")
	evaluate[bool](p, fmt.Sprintf(`fetch('/api/session').then((r) => r.json()).then((s) => fetch('/signout',
		{method: 'POST', headers: {'X-Dashboard-Token': s.csrf}})).then((r) => r.status === %d)`, 204))
	p.wait("the page for signing in", `location.pathname === '/signin'`)
	p.waitText("session")
}
