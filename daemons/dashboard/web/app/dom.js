// Builds the document. Text is only ever set as text: content of the cluster cannot become markup.

const svgNamespace = 'http://www.w3.org/2000/svg';

/**
 * Sets attributes, properties and listeners of an element.
 * @param {Element} element
 * @param {Object<string, any>} props `on` is an object of listeners, `class` a string; null and false are left out
 */
function setProps(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === 'value' || name === 'checked') {
      element[name] = value;
    } else if (name.startsWith('on') || name === 'style') {
      throw new Error(`the attribute ${name} is not allowed`);
    } else {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
}

/**
 * Appends children. Strings and numbers become text, arrays are flattened, null and false are left out.
 * @param {Node} parent
 * @param {Array} children
 */
function append(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return parent;
}

/**
 * Returns a new element.
 * @param {string} tag
 * @param {Object<string, any>|null} props
 * @param {...any} children
 * @returns {HTMLElement}
 */
export function h(tag, props = null, ...children) {
  const element = document.createElement(tag);
  if (props) setProps(element, props);
  return append(element, ...children);
}

/**
 * Returns a new SVG element.
 * @param {string} tag
 * @param {Object<string, any>|null} props
 * @param {...any} children
 * @returns {SVGElement}
 */
export function svg(tag, props = null, ...children) {
  const element = document.createElementNS(svgNamespace, tag);
  if (props) setProps(element, props);
  return append(element, ...children);
}

/**
 * Replaces the content of an element.
 * @param {Element} element
 * @param {...any} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, ...children);
}

/**
 * Sets the text of an element if it differs, so that selections and screen readers are not disturbed.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Returns a button.
 * @param {string} label
 * @param {(event: Event) => void} action
 * @param {Object<string, any>} props
 */
export function button(label, action, props = {}) {
  return h('button', {type: 'button', ...props, on: {click: action}}, label);
}

let counter = 0;

/** Returns an ID that no other element has. */
export function uniqueID(prefix) {
  counter++;
  return `${prefix}-${counter}`;
}
