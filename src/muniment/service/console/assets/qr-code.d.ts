/** The modules of a QR code (ISO/IEC 18004) of a text, true where dark, by row. Throws for a text that is too long. */
export function encode(text: string, options: { border: number }): { size: number, data: boolean[][] };
