package lsp

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// frame is a bracket that is open at a position.
type frame struct {
	isBlock bool
	name    string // type of the block
	labels  []string
}

// bracketsAt returns the brackets that are open at a position, outermost first, and reports whether the position is in
// an expression. It uses only tokens, because a document being typed rarely parses.
func bracketsAt(text string, at int) (frames []frame, expression bool) {
	tokens, _ := hclsyntax.LexConfig([]byte(text[:at]), "", hcl.InitialPos)
	var line []hclsyntax.Token // tokens since the last line break outside brackets of expressions
	equals := false
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace:
			f := blockHeader(line)
			if equals {
				f = frame{}
			}
			frames = append(frames, f)
			if f.isBlock {
				line = nil
			}
			continue
		case hclsyntax.TokenOBrack,
			hclsyntax.TokenOParen,
			hclsyntax.TokenTemplateInterp,
			hclsyntax.TokenTemplateControl:
			frames = append(frames, frame{})
			continue
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			if len(frames) > 0 {
				if frames[len(frames)-1].isBlock {
					line, equals = nil, false
				}
				frames = frames[:len(frames)-1]
			}
			continue
		}
		inside := len(frames) > 0 && !frames[len(frames)-1].isBlock
		switch {
		case t.Type == hclsyntax.TokenNewline && !inside:
			line, equals = nil, false
		case t.Type == hclsyntax.TokenEqual && !inside:
			equals = true
		default:
			line = append(line, t)
		}
	}
	return frames, equals || len(frames) > 0 && !frames[len(frames)-1].isBlock
}

// blockHeader returns the block that the tokens of a line open, or a frame that is not a block.
func blockHeader(line []hclsyntax.Token) frame {
	if len(line) == 0 || line[0].Type != hclsyntax.TokenIdent {
		return frame{}
	}
	f := frame{isBlock: true, name: string(line[0].Bytes)}
	for _, t := range line[1:] {
		switch t.Type {
		case hclsyntax.TokenOQuote, hclsyntax.TokenCQuote:
		case hclsyntax.TokenQuotedLit, hclsyntax.TokenIdent:
			f.labels = append(f.labels, string(t.Bytes))
		default:
			return frame{}
		}
	}
	return f
}

func isWordByte(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// referenceAt returns the parts of the reference at a position up to the end of the word there, and the position of
// that word. It leaves out indexes in brackets.
func referenceAt(text string, at int, whole bool) (parts []string, from, to int) {
	to = at
	for whole && to < len(text) && isWordByte(text[to]) {
		to++
	}
	from = at
	for from > 0 && isWordByte(text[from-1]) {
		from--
	}
	start := from
	depth := 0
	for start > 0 {
		c := text[start-1]
		switch {
		case c == ']':
			depth++
		case c == '[' && depth > 0:
			depth--
		case depth > 0 && c != '\n':
		case isWordByte(c) || c == '.':
		default:
			depth = -1
		}
		if depth < 0 {
			break
		}
		start--
	}
	var out strings.Builder
	depth = 0
	for i := start; i < to; i++ {
		switch c := text[i]; {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case depth == 0:
			out.WriteByte(c)
		}
	}
	return strings.Split(out.String(), "."), from, to
}
