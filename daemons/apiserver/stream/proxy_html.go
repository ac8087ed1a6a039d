package stream

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

// linkAttributes lists the attributes of HTML elements that hold URLs.
var linkAttributes = map[string][]string{
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
	if current, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || current != "text/html" ||
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
		text = &lazyGzip{source: body}
	default:
		return
	}
	for _, name := range []string{"Content-Length", "Content-Encoding", "Content-Md5", "Digest", "Accept-Ranges"} {
		r.Header.Del(name)
	}
	r.ContentLength, r.Uncompressed = -1, true
	page := &pageRewriter{text: text, tokens: html.NewTokenizer(text), rewriteLink: lead}
	page.tokens.SetMaxBuf(maxToken)
	r.Body = struct {
		io.Reader
		io.Closer
	}{page, body}
}

// lazyGzip starts to decompress at its first read, so that the response header does not wait for the body.
type lazyGzip struct {
	source io.Reader
	reader *gzip.Reader
}

func (u *lazyGzip) Read(b []byte) (int, error) {
	if u.reader == nil {
		var err error
		if u.reader, err = gzip.NewReader(u.source); err != nil {
			return 0, err
		}
	}
	return u.reader.Read(b)
}

// maxToken is how many bytes of a page are buffered. After a longer token, the rest of the page is copied
// unchanged.
const maxToken = 1 << 20

// pageRewriter reads a page with its links rewritten.
type pageRewriter struct {
	text        io.Reader
	tokens      *html.Tokenizer
	rewriteLink func(link string) string

	output    bytes.Buffer
	isCopying bool // the rest is copied unchanged
	end       error
}

// Read implements io.Reader.
func (p *pageRewriter) Read(b []byte) (int, error) {
	for p.output.Len() == 0 {
		if p.isCopying {
			return p.text.Read(b)
		}
		if p.end != nil {
			return 0, p.end
		}
		p.next()
	}
	return p.output.Read(b)
}

func (p *pageRewriter) next() {
	kind := p.tokens.Next()
	raw := p.tokens.Raw()
	switch kind {
	case html.ErrorToken:
		p.output.Write(raw)
		if p.tokens.Err() == html.ErrBufferExceeded {
			p.output.Write(p.tokens.Buffered())
			p.isCopying = true
			return
		}
		p.end = p.tokens.Err()
	case html.StartTagToken, html.SelfClosingTagToken:
		p.output.Write(p.rewriteTag(bytes.Clone(raw))) // reading a token changes raw
	default:
		p.output.Write(raw)
	}
}

// rewriteTag returns a tag with its links rewritten. If no link changes, it returns the original bytes.
func (p *pageRewriter) rewriteTag(raw []byte) []byte {
	token := p.tokens.Token()
	changed := false
	for i, a := range token.Attr {
		if a.Namespace != "" || !slices.Contains(linkAttributes[token.Data], a.Key) {
			continue
		}
		if to := p.rewriteLink(strings.TrimSpace(a.Val)); to != strings.TrimSpace(a.Val) {
			token.Attr[i].Val, changed = to, true
		}
	}
	if !changed {
		return raw
	}
	return []byte(token.String())
}
