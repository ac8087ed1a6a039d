package apiserver

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"clusterctl/daemons/api/header"
)

// linked lists the attributes of HTML elements that hold URLs.
var linked = map[string][]string{
	"a": {"href"}, "applet": {"codebase"}, "area": {"href"}, "audio": {"src"}, "base": {"href"}, "blockquote": {"cite"},
	"body": {
		"background",
	}, "button": {"formaction"}, "command": {"icon"}, "del": {"cite"}, "embed": {"src"}, "form": {"action"},
	"frame": {"longdesc", "src"}, "head": {"profile"}, "html": {"manifest"}, "iframe": {"longdesc", "src"},
	"img": {"longdesc", "src", "usemap"}, "input": {"src", "usemap", "formaction"}, "ins": {"cite"}, "link": {"href"},
	"object": {
		"classid",
		"codebase",
		"data",
		"usemap",
	}, "q": {"cite"}, "script": {"src"}, "source": {"src"}, "track": {"src"},
	"video": {"src", "poster"},
}

// acceptsRewritable limits Accept-Encoding to gzip, so that this server can read the page in the response.
func acceptsRewritable(h http.Header) {
	zips := header.Accepts(header.Joined(h, "Accept-Encoding"), "gzip")
	h.Del("Accept-Encoding")
	if zips {
		h.Set("Accept-Encoding", "gzip")
	}
}

// rewritePage replaces the links of an HTML page by what lead returns for them. Other or partial content stays
// unchanged.
func rewritePage(r *http.Response, lead func(link string) string) {
	if is, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || is != "text/html" ||
		r.StatusCode == http.StatusPartialContent ||
		r.Body == nil ||
		r.Body == http.NoBody ||
		r.Request != nil && r.Request.Method == http.MethodHead {
		return
	}
	body := r.Body
	var text io.Reader = body
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		text = &unzipped{from: body}
	default:
		return
	}
	for _, name := range []string{"Content-Length", "Content-Encoding", "Content-Md5", "Digest", "Accept-Ranges"} {
		r.Header.Del(name)
	}
	r.ContentLength, r.Uncompressed = -1, true
	page := &page{text: text, tokens: html.NewTokenizer(text), lead: lead}
	page.tokens.SetMaxBuf(longestToken)
	r.Body = struct {
		io.Reader
		io.Closer
	}{page, body}
}

// unzipped starts to decompress at its first read, so that the response header does not wait for the body.
type unzipped struct {
	from   io.Reader
	reader *gzip.Reader
}

func (u *unzipped) Read(b []byte) (int, error) {
	if u.reader == nil {
		var err error
		if u.reader, err = gzip.NewReader(u.from); err != nil {
			return 0, err
		}
	}
	return u.reader.Read(b)
}

// longestToken is how many bytes of a page are buffered. After a longer token, the rest of the page is copied
// unchanged.
const longestToken = 1 << 20

// page reads a page with its links rewritten.
type page struct {
	text   io.Reader
	tokens *html.Tokenizer
	lead   func(link string) string

	ready bytes.Buffer
	rest  bool // the rest is copied unchanged
	end   error
}

// Read implements io.Reader.
func (p *page) Read(b []byte) (int, error) {
	for p.ready.Len() == 0 {
		if p.rest {
			return p.text.Read(b)
		}
		if p.end != nil {
			return 0, p.end
		}
		p.next()
	}
	return p.ready.Read(b)
}

func (p *page) next() {
	kind := p.tokens.Next()
	raw := p.tokens.Raw()
	switch kind {
	case html.ErrorToken:
		p.ready.Write(raw)
		if p.tokens.Err() == html.ErrBufferExceeded {
			p.ready.Write(p.tokens.Buffered())
			p.rest = true
			return
		}
		p.end = p.tokens.Err()
	case html.StartTagToken, html.SelfClosingTagToken:
		p.ready.Write(p.tag(bytes.Clone(raw))) // reading a token changes raw
	default:
		p.ready.Write(raw)
	}
}

// tag returns a tag with its links rewritten. If no link changes, it returns the original bytes.
func (p *page) tag(raw []byte) []byte {
	token := p.tokens.Token()
	changed := false
	for i, a := range token.Attr {
		if a.Namespace != "" || !slices.Contains(linked[token.Data], a.Key) {
			continue
		}
		if to := p.lead(strings.TrimSpace(a.Val)); to != strings.TrimSpace(a.Val) {
			token.Attr[i].Val, changed = to, true
		}
	}
	if !changed {
		return raw
	}
	return []byte(token.String())
}
