package run

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHealthIsToldAsUpstreamTellsIt(t *testing.T) {
	env := NewEnv(slog.New(slog.DiscardHandler))
	env.Health.Ready("store", func() error { return errors.New("it does not answer") })
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/livez":                                  {200, "ok"},
		"/livez?verbose":                          {200, "[+]ping ok\nlivez check passed\n"},
		"/livez/ping?verbose":                     {200, "ok"},
		"/livez/nothing":                          {404, "404 page not found\n"},
		"/readyz":                                 {500, "[+]ping ok\n[-]store failed: reason withheld\nreadyz check failed\n"},
		"/readyz/store":                           {500, "internal server error: reason withheld\n"},
		"/readyz?exclude=store":                   {200, "ok"},
		"/readyz?verbose&exclude=store":           {200, "[+]ping ok\n[+]store excluded: ok\nreadyz check passed\n"},
		"/livez?verbose&exclude=b&exclude=a":      {200, "[+]ping ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nlivez check passed\n"},
		"/readyz?exclude=b&exclude=ping&verbose=": {500, "[+]ping excluded: ok\n[-]store failed: reason withheld\nwarn: some health checks cannot be excluded: no matches for \"b\"\nreadyz check failed\n"},
		"/readyz/store?authorized":                {500, "internal server error: it does not answer\n"},
		"/readyz?authorized":                      {500, "[+]ping ok\n[-]store failed: reason withheld\nreadyz check failed\n"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		env.Handler().ServeHTTP(w, TellReasons(r, func() bool { return r.URL.Query().Has("authorized") }))
		if w.Code != want.code || w.Body.String() != want.text {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, w.Body, want.code, want.text)
		}
	}
}
