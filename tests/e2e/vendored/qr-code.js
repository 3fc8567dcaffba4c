// What the console's pages take from uqr: the modules of a QR code.
export { encode } from "uqr";
